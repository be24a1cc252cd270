; Runs when the watchdog has found the Oracle stuck three times within a minute.

(tree "recovery"
  :description "Answers in place of an agent that got stuck"
  :blackboard-schema { :failure nil :stopped "" }
  (action recover :fn "oracle.recover"))
