; The Oracle: takes a question and returns an answer. This file defines everything in between.
; Its leaves are functions in dodona/agent/leaves. `dodona tree show` draws the tree.

(tree "oracle"
  :description "Answers a question with the project's tools, turn by turn"
  :blackboard-schema {
    ;; From the user's settings, set when a run starts.
    :max_iterations 15
    :max_parallel_tools 3
    :seconds_left 120

    ;; Relevant notes and threads, and sources that have changed since they were read.
    :retrieved ""
    :stale []

    ;; Progress: turns, tokens, recent actions, repeated calls.
    :state {}
    :loop {}

    ;; Delivered notices, and the inbox of pending ones.
    :notices []
    :inbox {}

    ;; The model's response, its tool calls and their results.
    :answer nil
    :tool_calls []
    :approval nil
    :tool_results []

    ;; The end of the run.
    :finished false
    :stopped ""
    :failure nil
    :saved false
  }

  (sequence
    (action begin :fn "oracle.begin")
    (action retrieve-context :fn "oracle.retrieve_context")
    (action add-question :fn "oracle.add_question")

    (selector answer
      ;; Repeat turns until the model answers without calling a tool.
      (timeout in-time :seconds (blackboard :seconds_left)
        (repeater loop :max-iterations (blackboard :max_iterations)
                       :until (blackboard :finished)
          ;; Stops before a turn when a limit is reached; rules warn earlier.
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
                        ;; Rules may deny a call or require the user's approval.
                        (if (condition needs-approval?)
                          (sequence
                            (action request-approval :fn "tools.request_approval")
                            (if (condition awaits-approval?)
                              (action await-approval :fn "tools.await_approval"))))
                        (if (condition is-delegated?)
                          (sequence
                            (action announce :fn "oracle.announce")
                            ;; Runs another tree: trees/librarian.lisp, with its own blackboard.
                            (action delegate :fn "oracle.delegate"))
                          (sequence
                            (action execute-tool :fn "tools.execute")
                            (if (condition is-too-large?)
                              (action summarise-result :fn "oracle.summarise_result")))))))
                  (action record-results :fn "oracle.record_results")
                  (if (condition has-notices?)
                    (sequence
                      (action deliver-notices :fn "oracle.deliver_notices")
                      (action add-delivered-notices :fn "oracle.add_notices"))))
                (set :finished true))))))

      ;; After a limit, show which one. After an error this fails, and so does the run.
      (action explain-end :fn "oracle.explain_end"))

    ;; Store the remaining notices with the answer.
    (if (condition has-notices?)
      (sequence
        (action deliver-last-notices :fn "oracle.deliver_notices")
        (action add-last-notices :fn "oracle.add_notices")))

    (if (blackboard :finished)
      (sequence
        (if (condition may-cite?)
          (action cite-sources :fn "oracle.cite_sources"))
        (action save-exchange :fn "oracle.save_exchange"))))

  :finally
    (sequence
      ;; However the run ended, store the answer so far.
      (if (not (blackboard :saved))
        (action save-partial :fn "oracle.save_partial"))
      (action end-session :fn "oracle.end_session")))
