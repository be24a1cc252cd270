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
    :leave nil
    :tool_results []

    ;; How it ends.
    :finished false
    :stopped ""
    :failure nil
  }

  (sequence
    (action take-task :fn "subagent.take_task")

    (selector work
      (timeout in-time :seconds (blackboard :seconds_left)
        (repeater loop :max-iterations (blackboard :max_iterations)
                       :until (blackboard :finished)
          (decorator turn-control
            (sequence turn
              (action take-notices :fn "oracle.take_notices")
              (llm-call)
              (action take-answer :fn "oracle.take_answer")
              (if (condition has-tool-calls?)
                (sequence
                  (action detect-loop :fn "oracle.detect_loop")
                  (parallel tools :policy :continue-on-failure :merge :collect
                                  :max-concurrent (blackboard :max_parallel_tools)
                    (for-each (blackboard :tool_calls)
                      (sequence
                        (if (condition needs-leave?)
                          (sequence
                            (action ask-leave :fn "tools.ask_leave")
                            (if (condition is-asked?)
                              (action await-leave :fn "tools.await_leave"))))
                        (action execute-tool :fn "tools.execute"))))
                  (action take-results :fn "oracle.take_results")
                  (if (condition has-notices?)
                    (sequence
                      (action tell-notices :fn "oracle.tell_notices")
                      (action take-told :fn "oracle.take_notices"))))
                (set :finished true))))))

      ;; A limit ended it, or an error: that is what it reports.
      (action explain-end :fn "subagent.explain_end"))))
