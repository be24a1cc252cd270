; In addition to ecmascript.scm. It has no names of its own.

(jsx_text) @text
(field_definition property: (_) @attribute) @definition
