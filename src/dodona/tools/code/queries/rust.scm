; The first paragraph captures names and is only used to find references.
[(identifier) (field_identifier) (type_identifier) (shorthand_field_identifier)] @id

[(line_comment) (block_comment)] @above @text
(attribute_item) @above
(string_content) @text

(function_item name: (identifier) @function) @definition
(function_signature_item name: (identifier) @function) @definition
(struct_item name: (type_identifier) @struct) @definition
(union_item name: (type_identifier) @struct) @definition
(enum_item name: (type_identifier) @enum) @definition
(enum_variant name: (identifier) @constant) @definition
(trait_item name: (type_identifier) @trait) @definition
(impl_item type: (type_identifier) @scope) @definition
(impl_item type: (generic_type type: (type_identifier) @scope)) @definition
(impl_item type: (scoped_type_identifier name: (type_identifier) @scope)) @definition
(type_item name: (type_identifier) @type) @definition
(associated_type name: (type_identifier) @type) @definition
(mod_item name: (identifier) @module_name) @definition
(macro_definition name: (identifier) @macro) @definition
(const_item name: (identifier) @constant) @definition
(static_item name: (identifier) @constant) @definition
(field_declaration name: (field_identifier) @attribute) @definition

(use_declaration argument: [(identifier) (scoped_identifier) (use_wildcard)] @module) @import
(use_declaration argument: (use_as_clause path: (_) @module)) @import
(use_declaration argument: (scoped_use_list path: (_) @module)) @import
(use_list (identifier) @imported)
(use_list (use_as_clause path: (identifier) @imported))
(use_list (scoped_identifier) @imported)
(extern_crate_declaration name: (identifier) @module) @import
