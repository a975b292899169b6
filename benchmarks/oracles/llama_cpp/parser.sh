#!/bin/sh
# parser.sh LLAMA_CPP FOLDER: builds FOLDER/parser of parser.cpp and of the tree's own parser, in about two minutes.
# What the parser links and never calls (models, back ends, downloads) becomes a function that returns nothing.
set -eu
tree=$1 out=$2 here=$(dirname "$0")
mkdir -p "$out/objects"
test -e "$tree/ggml/src/ggml-version.h" || {
    mkdir -p "$out/include"
    printf '#define GGML_VERSION ""\n#define GGML_COMMIT ""\n' > "$out/include/ggml-version.h"
}
search="-I$out/include -I$tree/common -I$tree/include -I$tree/ggml/include -I$tree/ggml/src -I$tree/vendor"
gcc -std=gnu11 -O0 $search -c "$tree/ggml/src/ggml.c" -o "$out/objects/ggml.o"
for file in arg common log preset json json-schema-to-grammar json-schema sampling speculative unicode trie; do
    g++ -std=c++17 -O0 $search -c "$tree/common/$file.cpp" -o "$out/objects/$file.o"
done
g++ -std=c++17 -O0 $search -c "$here/parser.cpp" -o "$out/objects/parser.o"
missing=$(g++ -no-pie "$out"/objects/*.o -o /dev/null -Wl,--no-demangle 2>&1 | sed -n "s/.*undefined reference to \`\([^']*\)'.*/\1/p" | sort -u)
{
    for name in $missing; do
        case $name in
            _ZTI* | _ZTV*) printf '.data\n.weak %s\n%s: .zero 256\n' "$name" "$name" ;;
            *) printf '.text\n.weak %s\n%s: xor %%eax,%%eax\nret\n' "$name" "$name" ;;
        esac
    done
    echo '.section .note.GNU-stack,"",@progbits'
} > "$out/absent.s"
as "$out/absent.s" -o "$out/absent.o"
g++ -no-pie "$out"/objects/*.o "$out/absent.o" -o "$out/parser"
