#!/usr/bin/env bash
# Deploys a model and writes what it found as Markdown, for a comment or a summary of a pipeline.
#
#   MODEL      model file; empty where edgetlm.toml names it
#   DEVICE     name of a device; empty for an emulated one, which is made
#   EMULATE    architecture of the emulated device: aarch64 or riscv64
#   OPTIONS    further options of `sdk deploy`, separated by spaces
#   BASELINE   figures or report of the state before, to compare with; may be missing
#   TOLERANCE  percent by which a figure may get worse beyond noise
#   OUT        folder for figures.json, report.html, bundle and comment.md
#
# The exit code is that of `sdk deploy`, or 3 where a figure got worse than in BASELINE. The comment is written in
# each case.
set -euo pipefail
: "${MODEL:=}" "${DEVICE:=}" "${EMULATE:=aarch64}" "${OPTIONS:=}" "${BASELINE:=}" "${TOLERANCE:=0}" "${OUT:=edgetlm-out/ci}"

mkdir -p "$OUT"
if [ -z "$DEVICE" ]; then
    DEVICE=pipeline
    sdk devices emulate "$EMULATE" --name "$DEVICE"
fi
read -ra options <<< "$OPTIONS"
model=()
if [ -n "$MODEL" ]; then
    model=("$MODEL")
fi
code=0
rm -f "$OUT/figures.json"
sdk deploy "${model[@]}" --device "$DEVICE" --json "$OUT/figures.json" --report "$OUT/report.html" \
    --bundle "$OUT/bundle" "${options[@]}" 2> "$OUT/errors.txt" || code=$?
cat "$OUT/errors.txt" >&2
{
    echo "### EdgeTLM"
    echo
    if [ ! -f "$OUT/figures.json" ]; then
        echo "Nothing was deployed (exit code $code):"
        echo
        sed 's/^/    /' "$OUT/errors.txt"
    else
        sdk report show "$OUT/figures.json" -o md
        if [ "$code" -ne 0 ]; then
            echo
            echo "Not installed (exit code $code):"
            echo
            sed 's/^/    /' "$OUT/errors.txt"
        fi
        if [ -n "$BASELINE" ] && [ -e "$BASELINE" ]; then
            echo
            echo "Compared with the state before:"
            echo
            worse=0
            sdk report compare "$BASELINE" "$OUT/figures.json" --tolerance "$TOLERANCE" -o md || worse=$?
            if [ "$code" -eq 0 ]; then
                code=$worse
            fi
        fi
    fi
} > "$OUT/comment.md"
cat "$OUT/comment.md"
exit "$code"
