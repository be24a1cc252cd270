; The four problems of the seed program. Each test shows what seed.lisp does, not what it should
; do; oracle.test.lisp has the counterparts. Run with
;
;     dodona tree test examples/oracle/seed.lisp
;
; The program reads :model and :max_tokens, which are not in its schema: the host sets them.

;; Problem 1: the loop ends at the first turn that succeeds, and a round of tools succeeds.

(test "problem 1: after one round of tools the loop ends without an answer"
  :given {:model "m" :max_tokens 1000}
  :leaves {"llm-call" {:set {:tool_calls ["a" "b"]}}
           :default :success}
  :expect {:status :success
           :calls {"llm-call" 1 "tools.execute" 2}
           :never ["oracle.save_exchange" "oracle.emit_done"]})

;; Problem 2: phase 5 follows the loop in a sequence: it runs when the loop has succeeded.

(test "problem 2: a finished answer is followed by 'turns exceeded'"
  :given {:model "m" :max_tokens 1000}
  :leaves {"llm-call" {:set {:accumulated_content "42"}}
           "has-tool-calls?" :failure
           "has-xml-tools?" :failure
           :default :success}
  :expect {:status :success
           :order ["oracle.emit_done" "oracle.emit_iteration_exceeded" "oracle.save_partial"
                   "oracle.emit_done_warning"]})

(test "problem 2: an exhausted loop is not followed by 'turns exceeded'"
  :given {:model "m" :max_tokens 1000}
  :leaves {"llm-call" :failure
           :default :success}
  :expect {:status :failure
           :calls {"llm-call" 30}
           :never ["oracle.emit_iteration_exceeded" "oracle.save_partial"]})

;; Problem 3: the selector treats a failed tool branch as "no tool calls".

(test "problem 3: a failed tool branch falls through and saves an answer"
  :given {:model "m" :max_tokens 1000}
  :leaves {"llm-call" {:set {:tool_calls ["again"]}}
           "oracle.detect_loop" {:raise "the same call for the third time"}
           "has-xml-tools?" :failure
           :default :success}
  :expect {:status :success
           :order ["oracle.detect_loop" "oracle.save_exchange" "oracle.emit_done"]
           :never ["tools.execute"]})

;; Problem 4: :until-success retries every failure.

(test "problem 4: a failed model call is made thirty times"
  :given {:model "m" :max_tokens 1000}
  :leaves {"llm-call" {:raise "the provider is down"}
           :default :success}
  :expect {:status :failure
           :error "the provider is down"
           :calls {"llm-call" 30}})

(test "problem 4: a cancelled run is tried thirty times"
  :given {:model "m" :max_tokens 1000}
  :leaves {"not-cancelled?" :failure
           "llm-call" :success
           :default :success}
  :expect {:status :failure
           :calls {"not-cancelled?" 30 "budget-check" 30}
           :never ["llm-call"]})
