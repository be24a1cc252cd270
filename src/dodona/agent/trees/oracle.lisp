; The Oracle: a question comes in, an answer goes out, and this file says all that may happen in
; between. The functions it names are in dodona/agent/leaves. `dodona tree show` draws it.

(tree "oracle"
  :description "Answers a question with the project's tools, turn by turn"
  :blackboard-schema {
    ;; From the user's settings, filled in when a run begins.
    :max_iterations 15
    :max_parallel_tools 3
    :seconds_left 120

    ;; Where the run stands: turns, tokens, what was done last.
    :state {}
    :loop {}
    :hints []

    ;; What the model said, what it called, and what came of that.
    :answer nil
    :tool_calls []
    :tool_results []

    ;; How it ends.
    :finished false
    :stopped ""
    :failure nil
    :saved false
  }

  (sequence
    (action begin :fn "oracle.begin")

    (selector answer
      ;; Turn after turn, until the model answers without calling a tool.
      (timeout in-time :seconds (blackboard :seconds_left)
        (repeater loop :max-iterations (blackboard :max_iterations)
                       :until (blackboard :finished)
          ;; Refuses a turn when a limit is reached, and warns before that.
          (decorator turn-control
            (sequence turn
              (action give-hints :fn "oracle.give_hints")
              (llm-call)
              (action take-answer :fn "oracle.take_answer")
              (if (condition has-tool-calls?)
                (sequence
                  (action detect-loop :fn "oracle.detect_loop")
                  (parallel tools :policy :continue-on-failure :merge :collect
                                  :max-concurrent (blackboard :max_parallel_tools)
                    (for-each (blackboard :tool_calls)
                      (if (condition is-for-librarian?)
                        (action ask-librarian :fn "oracle.ask_librarian")
                        (action execute-tool :fn "tools.execute"))))
                  (action take-results :fn "oracle.take_results"))
                (set :finished true))))))

      ;; A limit ended it: say which. After an error this fails, and so does the run.
      (action explain-end :fn "oracle.explain_end"))

    (if (blackboard :finished)
      (sequence
        (if (condition has-sources?)
          (action cite-sources :fn "oracle.cite_sources"))
        (action save-exchange :fn "oracle.save_exchange"))))

  :finally
    (sequence
      ;; Whatever ended the run: what was said so far is kept.
      (if (not (blackboard :saved))
        (action save-partial :fn "oracle.save_partial"))
      (action end-session :fn "oracle.end_session")))
