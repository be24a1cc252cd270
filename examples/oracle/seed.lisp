(tree "oracle-agent"
  :description "Main Oracle chat agent"
  :blackboard-schema {
    :query nil
    :user_id nil
    :project_id nil
    :context_id nil
    :messages []
    :tools []
    :turn 0
    :accumulated_content ""
    :tool_calls []
    :collected_sources []
    :cancelled false
  }

  (sequence
    ;; Phase 1: Initialization
    (action reset-state :fn "oracle.reset_state")
    (action emit-query-start :fn "oracle.emit_query_start")

    ;; Phase 2: Context Loading
    (selector
      (sequence
        (condition has-context-id?)
        (action load-tree-node :fn "oracle.load_tree_node"))
      (action get-or-create-tree :fn "oracle.get_or_create_tree"))
    (action load-legacy-context :fn "oracle.load_legacy_context")
    (action load-cross-session-notifications :fn "oracle.load_cross_session")

    ;; Phase 3: Message Building
    (action build-system-prompt :fn "oracle.build_system_prompt")
    (action add-tree-history :fn "oracle.add_tree_history")
    (action inject-notifications :fn "oracle.inject_notifications")
    (action add-user-question :fn "oracle.add_user_question")
    (action get-tool-schemas :fn "oracle.get_tool_schemas")

    ;; Phase 4: Agent Loop
    (repeater :max-iterations 30 :until-success
      (decorator budget-check
        (sequence
          ;; Check cancellation
          (condition not-cancelled?)

          ;; Budget warnings
          (action check-iteration-budget :fn "oracle.check_iteration_budget")
          (action drain-turn-start-notifications :fn "oracle.drain_turn_start")

          ;; Agent Turn (subtree)
          (subtree agent-turn
            (sequence
              (llm-call :model (blackboard :model)
                        :messages (blackboard :messages)
                        :tools (blackboard :tools)
                        :stream-to [:partial-response]
                        :budget (blackboard :max_tokens)
                        :interruptible true
                        :timeout 60)

              ;; Handle response
              (selector
                ;; Tool calls detected
                (sequence
                  (condition has-tool-calls?)
                  (action detect-loop :fn "oracle.detect_loop")
                  (parallel :policy :continue-on-failure
                    (for-each (blackboard :tool_calls)
                      (action execute-tool :fn "tools.execute")))
                  (action drain-notifications :fn "oracle.drain_after_tool"))

                ;; Final response (no tool calls)
                (sequence
                  (action extract-xml-tools :fn "oracle.extract_xml_tools")
                  (selector
                    (sequence
                      (condition has-xml-tools?)
                      (parallel :policy :continue-on-failure
                        (for-each (blackboard :xml_tool_calls)
                          (action execute-tool :fn "tools.execute"))))
                    (sequence
                      (action save-exchange :fn "oracle.save_exchange")
                      (action yield-sources :fn "oracle.yield_sources")
                      (action emit-done :fn "oracle.emit_done")
                      (succeed))))))))))

    ;; Phase 5: Max Turns Exceeded
    (sequence
      (action emit-iteration-exceeded :fn "oracle.emit_iteration_exceeded")
      (action drain-immediate-notifications :fn "oracle.drain_immediate")
      (action save-partial-exchange :fn "oracle.save_partial")
      (action emit-done-with-warning :fn "oracle.emit_done_warning")))

  :finally
    (sequence
      (action save-partial-if-needed :fn "oracle.save_partial_cleanup")
      (action emit-session-end :fn "oracle.emit_session_end")))
