; The Librarian: a task comes in, a report goes out. It is run by the Oracle's tree, in one leaf, with
; a blackboard of its own; its steps are in the journal of the same run.

(tree "librarian"
  :description "Does one task with the tools of a subagent, and reports once"
  :blackboard-schema {
    ;; The subagent's own limits, filled in when its work begins.
    :max_iterations 10
    :max_parallel_tools 3
    :seconds_left 1200
    :task ""

    ;; Where it stands: turns, tokens, what was done last.
    :state {}
    :loop {}
    :notices []
    :inbox {}

    ;; What its model said, what that called, and what came of it.
    :answer nil
    :tool_calls []
    :approval nil
    :tool_results []

    ;; How it ends.
    :finished false
    :stopped ""
    :failure nil
  }

  (sequence
    (action add-task :fn "subagent.add_task")

    (selector work
      (timeout in-time :seconds (blackboard :seconds_left)
        (repeater loop :max-iterations (blackboard :max_iterations)
                       :until (blackboard :finished)
          (decorator turn-control
            (sequence turn
              (action add-notices :fn "oracle.add_notices")
              (llm-call)
              (action record-answer :fn "oracle.record_answer")
              (if (condition has-tool-calls?)
                (sequence
                  (action detect-loop :fn "oracle.detect_loop")
                  (parallel tools :policy :continue-on-failure :merge :collect
                                  :max-concurrent (blackboard :max_parallel_tools)
                    (for-each (blackboard :tool_calls)
                      (sequence
                        (if (condition needs-approval?)
                          (sequence
                            (action request-approval :fn "tools.request_approval")
                            (if (condition awaits-approval?)
                              (action await-approval :fn "tools.await_approval"))))
                        (action execute-tool :fn "tools.execute"))))
                  (action record-results :fn "oracle.record_results")
                  (if (condition has-notices?)
                    (sequence
                      (action deliver-notices :fn "oracle.deliver_notices")
                      (action take-told :fn "oracle.add_notices"))))
                (set :finished true))))))

      ;; A limit ended it, or an error: that is what it reports.
      (action explain-end :fn "subagent.explain_end"))))
