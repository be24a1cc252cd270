; The Librarian: takes a task and returns a report. The Oracle's tree runs it in one leaf, with a
; separate blackboard; its steps are in the journal of the same run.

(tree "librarian"
  :description "Performs one task with the tools of a subagent, and returns one report"
  :blackboard-schema {
    ;; Limits of the subagent, set when it starts.
    :max_iterations 10
    :max_parallel_tools 3
    :seconds_left 1200
    :task ""

    ;; Progress: turns, tokens, recent actions, pending notices.
    :state {}
    :loop {}
    :notices []
    :inbox {}

    ;; The model's response, its tool calls and their results.
    :answer nil
    :tool_calls []
    :approval nil
    :tool_results []

    ;; The end of the task.
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
                      (action add-delivered-notices :fn "oracle.add_notices"))))
                (set :finished true))))))

      ;; After a limit or an error, the report states the reason.
      (action explain-end :fn "subagent.explain_end"))))
