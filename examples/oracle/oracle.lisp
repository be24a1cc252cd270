; The Oracle's program: everything that happens between a question and its answer. It is a
; corrected version of seed.lisp. Differences are marked "unlike the seed";
; docs/explanation/oracle-program.md explains them.

(tree "oracle"
  :description "Answers a question with the project's tools, turn by turn"
  :blackboard-schema {
    :query nil
    :user_id nil
    :project_id nil
    :context_id nil
    :model nil
    :max_tokens nil
    :max_iterations 15
    :messages []
    :tools []
    :turn 0
    :accumulated_content ""
    :tool_calls []
    :xml_tool_calls []
    :tool_results []
    :collected_sources []
    :finished false
    :saved false
    :cancelled false
  }

  (sequence
    ;; Phase 1: Initialization
    (action reset-state :fn "oracle.reset_state")
    (action emit-query-start :fn "oracle.emit_query_start")

    ;; Phase 2: Context Loading
    (if (condition has-context-id?)
      (action load-tree-node :fn "oracle.load_tree_node")
      (action get-or-create-tree :fn "oracle.get_or_create_tree"))
    (action load-cross-session-notifications :fn "oracle.load_cross_session")

    ;; Phase 3: Message Building
    (action build-system-prompt :fn "oracle.build_system_prompt")
    (action add-tree-history :fn "oracle.add_tree_history")
    (action inject-notifications :fn "oracle.inject_notifications")
    (action add-user-question :fn "oracle.add_user_question")
    (action get-tool-schemas :fn "oracle.get_tool_schemas")

    ;; Unlike the seed, phases 4 and 5 are in a selector: phase 5 runs only if phase 4 has run
    ;; out of turns.
    (selector answer
      ;; Phase 4: Agent Loop. Unlike the seed, it runs until the answer is finished: a successful
      ;; round of tool calls does not end it, and a failed turn is not retried.
      (repeater loop :max-iterations (blackboard :max_iterations)
                     :until (blackboard :finished)
        (decorator budget-check
          (sequence
            (condition not-cancelled?)
            (action check-iteration-budget :fn "oracle.check_iteration_budget")
            (action drain-turn-start-notifications :fn "oracle.drain_turn_start")

            (subtree agent-turn
              (sequence
                (llm-call :model (blackboard :model)
                          :messages (blackboard :messages)
                          :tools (blackboard :tools)
                          :stream-to [:partial-response]
                          :budget (blackboard :max_tokens)
                          :interruptible true
                          :timeout 60)

                ;; Unlike the seed: an if, not a selector. If the tools fail, the turn fails
                ;; instead of saving an answer that does not exist.
                (if (condition has-tool-calls?)
                  (sequence
                    (action detect-loop :fn "oracle.detect_loop")
                    (parallel tools :policy :continue-on-failure :merge :collect
                      (for-each (blackboard :tool_calls)
                        (action execute-tool :fn "tools.execute")))
                    (action drain-notifications :fn "oracle.drain_after_tool"))

                  (sequence
                    (action extract-xml-tools :fn "oracle.extract_xml_tools")
                    (if (condition has-xml-tools?)
                      (parallel text-tools :policy :continue-on-failure :merge :collect
                        (for-each (blackboard :xml_tool_calls)
                          (action execute-tool :fn "tools.execute")))
                      (sequence
                        (action save-exchange :fn "oracle.save_exchange")
                        (action yield-sources :fn "oracle.yield_sources")
                        (action emit-done :fn "oracle.emit_done")
                        (set :finished true))))))))))

      ;; Phase 5: Max Turns Exceeded
      (sequence
        (condition out-of-turns? (blackboard :_exhausted))
        (action emit-iteration-exceeded :fn "oracle.emit_iteration_exceeded")
        (action drain-immediate-notifications :fn "oracle.drain_immediate")
        (action save-partial-exchange :fn "oracle.save_partial")
        (action emit-done-with-warning :fn "oracle.emit_done_warning"))))

  :finally
    (sequence
      ;; However the run ended, save the partial answer.
      (if (not (blackboard :saved))
        (action save-partial-if-needed :fn "oracle.save_partial_cleanup"))
      (action emit-session-end :fn "oracle.emit_session_end")))
