; The first paragraph captures names and is only used to find references.
(variable_name) @id
(command_name (word) @id)
(function_definition name: (word) @id)

(comment) @above @text
[(string_content) (raw_string) (ansi_c_string) (heredoc_body)] @text

(function_definition name: (word) @function) @definition
(program (variable_assignment name: (variable_name) @variable) @definition)
(program (declaration_command (variable_assignment name: (variable_name) @variable)) @definition)

((command
  name: (command_name (word) @_command)
  . argument: [(word) @module (string (string_content) @module) (raw_string) @module]) @import
  (#any-of? @_command "source" "."))
