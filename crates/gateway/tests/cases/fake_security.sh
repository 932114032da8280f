#!/bin/bash
# Pretends to be macOS's `security`, with its limits. Beside it lie the items, how it behaves, and what it was asked.
export LC_ALL=C
here=${0%/*}
how=$(cat "$here/how" 2>/dev/null)
for argument; do printf '%s\n' "$argument"; done >>"$here/argv"
printf '%s\n' -- >>"$here/argv"

case $how in
slow)
    mkdir "$here/busy" || echo "$*" >>"$here/overlaps"
    sleep 0.1
    rmdir "$here/busy"
    ;;
status-*) [ "$1" = -i ] || exit "${how#status-}" ;;
asks) [ "$1" = -i ] || { sleep 300 & echo $! >>"$here/children"; wait; } ;;
esac

if [ "$1" = find-generic-password ]; then
    # -a ACCOUNT -w -s SERVICE
    [ "$2$4$5" = -a-w-s ] || exit 2
    item=$here/items/$3/$6
    [ -f "$item" ] || { echo "security: The specified item could not be found in the keychain." >&2; exit 44; }
    if [ -n "$(tr -d ' -~' <"$item" | od -An -v -tx1)" ]; then
        od -An -v -tx1 <"$item" | tr -d ' \n'
    else
        cat "$item"
    fi
    echo
    exit 0
fi

[ "$*" = -i ] || exit 2
# It reads lines of at most 4095 bytes; what is longer becomes a second command.
IFS= read -r -n 4095 line
rest=$(cat)
printf '%s\n' "$line" >>"$here/lines"
service=$(sed -n 's/.* -s "\([^"]*\)".*/\1/p' <<<"$line")
account=$(sed -n 's/.* -a "\([^"]*\)".*/\1/p' <<<"$line")
hex=$(sed -n 's/^add-generic-password -U .* -X "\([0-9a-f]*\).*/\1/p' <<<"$line")
item=$here/items/$account/$service
mkdir -p "${item%/*}"
printf '%b' "$(sed 's/../\\x&/g' <<<"$hex")" >"$here/new"
# What begins with `pair-` befalls a write that changes something, and spares the probe.
case $how in pair-*) cmp -s "$here/new" "$item" || how=${how#pair-} ;; esac
[ "$how" = late ] && sleep 300
[ "$how" = drops-writes ] || mv "$here/new" "$item"
[ -n "$rest" ] && echo "security: unknown command \"$rest\"" | tee /dev/stderr
[ "$how" = late-but-done ] && sleep 300
exit 0
