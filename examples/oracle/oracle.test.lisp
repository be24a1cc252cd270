; Tests that oracle.lisp fixes the four problems of seed.lisp, one section for each problem in
; docs/explanation/oracle-program.md. The leaves are scripted. Run with
;
;     dodona tree test examples/oracle/oracle.lisp

;; Problem 1: a round of tool calls does not end the loop.

(test "a round of tools leads to another turn"
  :given {:query "How do budgets work?"}
  :leaves {"has-context-id?" :failure
           "llm-call" [{:set {:tool_calls [{:name "read" :path "a.md"} {:name "read" :path "b.md"}]}}
                       {:set {:tool_calls [] :accumulated_content "By reserving."}}]
           "has-tool-calls?" [:success :failure]
           "has-xml-tools?" :failure
           "oracle.save_exchange" {:set {:saved true}}
           :default :success}
  :expect {:status :success
           :blackboard {:finished true :accumulated_content "By reserving."}
           :calls {"llm-call" 2 "tools.execute" 2 "oracle.save_exchange" 1}
           :order ["llm-call" "tools.execute" "tools.execute" "llm-call" "oracle.save_exchange"]})

(test "tool calls in the text also lead to another turn"
  :leaves {"llm-call" {:set {:accumulated_content "…"}}
           "has-tool-calls?" :failure
           "oracle.extract_xml_tools" [{:set {:xml_tool_calls [{:name "read"}]}}
                                       {:set {:xml_tool_calls []}}]
           "has-xml-tools?" [:success :failure]
           "oracle.save_exchange" {:set {:saved true}}
           :default :success}
  :expect {:status :success
           :calls {"llm-call" 2 "tools.execute" 1 "oracle.save_exchange" 1}})

(test "results of one round are collected in the order of the calls"
  :leaves {"llm-call" [{:set {:tool_calls ["a" "b" "c"]}} {:set {:tool_calls []}}]
           "has-tool-calls?" [:success :failure]
           "has-xml-tools?" :failure
           "tools.execute" [{:after 3 :set {:tool_results (blackboard :_item)}}
                            {:after 2 :set {:tool_results (blackboard :_item)}}
                            {:after 1 :set {:tool_results (blackboard :_item)}}]
           :default :success}
  :expect {:status :success :blackboard {:tool_results ["a" "b" "c"]}})

;; Problem 2: phase 5 runs only after an exhausted loop.

(test "a finished answer is not followed by 'turns exceeded'"
  :leaves {"llm-call" {:set {:accumulated_content "42"}}
           "has-tool-calls?" :failure
           "has-xml-tools?" :failure
           "oracle.save_exchange" {:set {:saved true}}
           :default :success}
  :expect {:status :success
           :calls {"oracle.emit_done" 1}
           :never ["oracle.emit_iteration_exceeded" "oracle.save_partial"
                   "oracle.emit_done_warning" "oracle.save_partial_cleanup"]})

(test "an exhausted loop ends in 'turns exceeded' and saves the partial answer"
  :given {:max_iterations 3}
  :leaves {"llm-call" {:set {:tool_calls ["again"]}}
           "oracle.save_partial" {:set {:saved true}}
           :default :success}
  :expect {:status :success
           :blackboard {:finished false :saved true}
           :calls {"llm-call" 3 "oracle.save_partial" 1}
           :order ["oracle.emit_iteration_exceeded" "oracle.drain_immediate"
                   "oracle.save_partial" "oracle.emit_done_warning"]
           :never ["oracle.save_exchange" "oracle.emit_done" "oracle.save_partial_cleanup"]})

;; Problem 3: a failed tool branch does not save an answer.

(test "when the tool branch fails, no answer is saved"
  :leaves {"llm-call" {:set {:tool_calls ["again"]}}
           "oracle.detect_loop" {:raise "the same call for the third time"}
           :default :success}
  :expect {:status :failure
           :error "the same call for the third time"
           :calls {"llm-call" 1 "oracle.save_partial_cleanup" 1}
           :never ["tools.execute" "oracle.extract_xml_tools" "oracle.save_exchange"
                   "oracle.emit_done"]})

(test "the model handles one failed tool"
  :leaves {"llm-call" [{:set {:tool_calls ["bad" "good"]}} {:set {:tool_calls []}}]
           "has-tool-calls?" [:success :failure]
           "has-xml-tools?" :failure
           "tools.execute" [{:raise "no such note"} :success]
           "oracle.save_exchange" {:set {:saved true}}
           :default :success}
  :expect {:status :success
           :calls {"llm-call" 2 "tools.execute" 2 "oracle.save_exchange" 1}})

;; Problem 4: a failed model call is not retried, and neither is a cancelled turn.

(test "a failed model call ends the run at once"
  :leaves {"llm-call" {:raise "the provider is down"}
           :default :success}
  :expect {:status :failure
           :error "the provider is down"
           :calls {"llm-call" 1 "oracle.save_partial_cleanup" 1 "oracle.emit_session_end" 1}
           :never ["oracle.save_exchange" "oracle.emit_iteration_exceeded"]})

(test "a run cancelled before its first turn calls no model"
  :leaves {"not-cancelled?" :failure
           "llm-call" :success
           :default :success}
  :expect {:status :failure
           :calls {"not-cancelled?" 1 "oracle.save_partial_cleanup" 1}
           :never ["llm-call" "oracle.emit_iteration_exceeded"]})

(test "a run cancelled between two turns does not call the model again"
  :leaves {"not-cancelled?" [:success :failure]
           "llm-call" {:set {:tool_calls ["a"] :accumulated_content "so far"}}
           :default :success}
  :expect {:status :failure
           :blackboard {:accumulated_content "so far"}
           :calls {"not-cancelled?" 2 "llm-call" 1 "oracle.save_partial_cleanup" 1}
           :never ["oracle.save_exchange" "oracle.emit_iteration_exceeded"]})

(test "a turn that the budget does not cover ends the run"
  :leaves {"budget-check" [:success :failure]
           "llm-call" {:set {:tool_calls ["a"]}}
           :default :success}
  :expect {:status :failure
           :calls {"budget-check" 2 "llm-call" 1 "oracle.save_partial_cleanup" 1}})
