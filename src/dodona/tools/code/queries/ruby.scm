; The first paragraph captures names and is only used to find references.
[(identifier) (constant) (instance_variable) (class_variable) (global_variable)] @id

(comment) @above @text
[(string_content) (heredoc_content)] @text

(class name: (constant) @class) @definition
(class name: (scope_resolution name: (constant) @class)) @definition
(module name: (constant) @module_name) @definition
(module name: (scope_resolution name: (constant) @module_name)) @definition
(method name: (_) @function) @definition
(singleton_method name: (_) @function) @definition
(alias name: (_) @function) @definition
(assignment left: (constant) @constant) @definition
(assignment left: (scope_resolution name: (constant) @constant)) @definition
(program (assignment left: [(identifier) (global_variable)] @variable) @definition)
((call
  method: (identifier) @_method
  arguments: (argument_list (simple_symbol) @attribute)) @definition
  (#any-of? @_method "attr_reader" "attr_writer" "attr_accessor"))

((call
  method: (identifier) @_method
  arguments: (argument_list . (string (string_content) @module))) @import
  (#any-of? @_method "require" "require_relative" "load" "autoload"))
