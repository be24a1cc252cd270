"""Words that people and documentation use for the same thing.

A stranger asks with other words than an author writes: "throw away" for "discard", "by hand" for
"manually". A synonym counts less than the word itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dodona.retrieval.words import stem

# One group per line. Only words of any software project, no terms of one field.
_GROUP_TEXT: Final = """
abort cancel interrupt
add append insert
admin administrator permission role
allow permit enable accept
answer reply response
argument parameter
avoid prevent
begin start startup launch initial
block deny refuse reject forbid
browser frontend
bug defect error failure
build compile
calculate compute
change modify edit alter
check verify validate
choice choose option select pick
compare comparison different difference
concurrent parallel simultaneous
container docker
copy duplicate
create generate make
crash break
default preset
delete remove erase
deprecated obsolete
directory folder
disable deactivate
download fetch
end stop finish shutdown exit
environment env
exception error traceback
exclude ignore skip omit leave
expire expiration timeout lifetime
export dump
fast performance speed quick
faster optimize performance
field column
find search locate lookup
function method def callable
halt stop
hand manual manually
hide hidden secret mask
identifier id
import load
include contain
install setup
invalid validate validator
key name
lag delay latency slow
limit maximum cap
link url
list enumerate
log logging
login authenticate authentication
library api
memory ram cpu resource
message text
newest latest recent
override overwrite replace
password secret credential
picture image
plugin extension
print output write display
protect security safe
dangerous unsafe
internet public
conflict clash merge
eat consume
publish release
quit exit
refresh reload
rename move
require need mandatory
restore recover undo revert rollback
run execute
save store persist
scope context
send post
set assign configure
setting configuration option preference
share reuse
show display
size length long
severity level
untouched unchanged
split divide
stale outdated
style format
terminal console shell
test testing
throw discard drop
upgrade update
upload file
user visitor client
value variable
version release
visible shown
wait block
warn warning
worker process
"""


def _build_synonyms() -> dict[str, frozenset[str]]:
    synonyms: dict[str, set[str]] = {}
    for line in _GROUP_TEXT.strip().splitlines():
        stems = {stem(word) for word in line.split()}
        for each in stems:
            synonyms.setdefault(each, set()).update(stems - {each})
    return {term: frozenset(others) for term, others in synonyms.items()}


SYNONYMS: Final[Mapping[str, frozenset[str]]] = _build_synonyms()
