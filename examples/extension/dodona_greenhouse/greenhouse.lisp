; Answers a question, turn by turn, with a leaf of this package.

(tree "greenhouse"
  :description "Answers a question, turn by turn"
  ;; The variables of a run, with their defaults. Dodona sets the first four.
  :blackboard-schema {
    :question ""
    :max_iterations 15
    :max_parallel_tools 3
    :seconds_left 120
    :state {} :answer nil :tool_calls [] :approval nil :tool_results []
    :notices [] :inbox {} :retrieved "" :stale [] :failure nil
    :finished false :stopped "" :saved false
  }

  (sequence
    (action add-question :fn "oracle.add_question")
    ;; The leaf of this package: fewer turns for short questions.
    (action plan :fn "greenhouse.plan")
    (selector answer
      (timeout in-time :seconds (blackboard :seconds_left)
        (repeater loop :max-iterations (blackboard :max_iterations)
                       :until (blackboard :finished)
          ;; Stops before a turn when the decision tree says so.
          (decorator turn-control
            (sequence turn
              (action add-notices :fn "oracle.add_notices")
              (llm-call)
              (action record-answer :fn "oracle.record_answer")
              (if (condition has-tool-calls?)
                (sequence
                  (parallel tools :policy :continue-on-failure :merge :collect
                                  :max-concurrent (blackboard :max_parallel_tools)
                    (for-each (blackboard :tool_calls)
                      (sequence
                        ;; A call that needs approval waits here.
                        (if (condition needs-approval?)
                          (sequence
                            (action request-approval :fn "tools.request_approval")
                            (if (condition awaits-approval?)
                              (action await-approval :fn "tools.await_approval"))))
                        (action execute-tool :fn "tools.execute"))))
                  (action record-results :fn "oracle.record_results")
                  ;; What rules and subscribers have to report: limits, failures, events.
                  (if (condition has-notices?)
                    (sequence
                      (action deliver-notices :fn "oracle.deliver_notices")
                      (action add-delivered-notices :fn "oracle.add_notices"))))
                (set :finished true))))))
      ;; After a limit: show which one.
      (action explain-end :fn "oracle.explain_end"))
    (if (condition has-notices?)
      (sequence
        (action deliver-last-notices :fn "oracle.deliver_notices")
        (action add-last-notices :fn "oracle.add_notices")))
    (if (blackboard :finished)
      (action save-exchange :fn "oracle.save_exchange")))

  ;; However the run ended, store the answer so far.
  :finally
    (if (not (blackboard :saved))
      (action save-partial :fn "oracle.save_partial")))
