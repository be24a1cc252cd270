; The Oracle: a question comes in, an answer goes out, and this file says all that may happen in
; between. The functions it names are in dodona/agent/leaves. `dodona tree show` draws it.

(tree "oracle"
  :description "Answers a question with the project's tools, turn by turn"
  :blackboard-schema {
    ;; From the user's settings, filled in when a run begins.
    :max_iterations 15
    :max_parallel_tools 3
    :seconds_left 120

    ;; The notes and threads around it, and what was read before and has changed since.
    :retrieved ""
    :stale []

    ;; Where the run stands: turns, tokens, what was done last.
    :state {}
    :loop {}

    ;; What it is told of events, and what waits to be told.
    :notices []
    :inbox {}

    ;; What the model said, what it called, and what came of that.
    :answer nil
    :tool_calls []
    :approval nil
    :tool_results []

    ;; How it ends.
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
      ;; Turn after turn, until the model answers without calling a tool.
      (timeout in-time :seconds (blackboard :seconds_left)
        (repeater loop :max-iterations (blackboard :max_iterations)
                       :until (blackboard :finished)
          ;; Refuses a turn when a limit is reached; rules warn before that.
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
                        ;; Rules may refuse a call, or want a person asked.
                        (if (condition needs-approval?)
                          (sequence
                            (action request-approval :fn "tools.request_approval")
                            (if (condition awaits-approval?)
                              (action await-approval :fn "tools.await_approval"))))
                        (if (condition is-delegated?)
                          (sequence
                            (action announce :fn "oracle.announce")
                            ;; Another tree: trees/librarian.lisp, with a blackboard of its own.
                            (action delegate :fn "oracle.delegate"))
                          (sequence
                            (action execute-tool :fn "tools.execute")
                            (if (condition is-too-large?)
                              (action summarise-result :fn "oracle.summarise_result")))))))
                  (action record-results :fn "oracle.record_results")
                  (if (condition has-notices?)
                    (sequence
                      (action deliver-notices :fn "oracle.deliver_notices")
                      (action take-told :fn "oracle.add_notices"))))
                (set :finished true))))))

      ;; A limit ended it: say which. After an error this fails, and so does the run.
      (action explain-end :fn "oracle.explain_end"))

    ;; What is left to tell is kept with the answer.
    (if (condition has-notices?)
      (sequence
        (action tell-last :fn "oracle.deliver_notices")
        (action take-last :fn "oracle.add_notices")))

    (if (blackboard :finished)
      (sequence
        (if (condition may-cite?)
          (action cite-sources :fn "oracle.cite_sources"))
        (action save-exchange :fn "oracle.save_exchange"))))

  :finally
    (sequence
      ;; Whatever ended the run: what was said so far is kept.
      (if (not (blackboard :saved))
        (action save-partial :fn "oracle.save_partial"))
      (action end-session :fn "oracle.end_session")))
