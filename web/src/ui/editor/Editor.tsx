/** Text editor for specs (CodeMirror), with errors marked at their positions. */

import {
  autocompletion,
  completionKeymap,
  type CompletionContext,
  type CompletionResult,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";

import { nonce } from "../../app/nonce";
import { completions, type SpecName } from "./completions";

export type Format = "yaml" | "json";

const colors = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: [tags.string, tags.content], color: "var(--ink)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--running)" },
  { tag: tags.comment, color: "var(--ink-3)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator], color: "var(--ink-3)" },
]);

const editorTheme = EditorView.theme({
  "&": { height: "100%", fontSize: "12.5px", backgroundColor: "transparent" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--font-mono)", lineHeight: "20px", fontVariantLigatures: "none" },
  ".cm-content": { padding: "12px 0", caretColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "transparent", border: "0", color: "var(--ink-3)" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--ink) 4%, transparent)" },
  ".cm-selectionBackground, &.cm-focused .cm-selectionBackground": {
    backgroundColor: "color-mix(in srgb, var(--focus) 24%, transparent) !important",
  },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-tooltip": {
    backgroundColor: "var(--surface)",
    border: "1px solid var(--line-strong)",
    borderRadius: "6px",
    overflow: "hidden",
    color: "var(--ink)",
  },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--hover)", color: "var(--ink)" },
  ".cm-completionDetail": { color: "var(--ink-3)", fontStyle: "normal" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--failed)" },
});

interface Props {
  schema: SpecName;
  text: string;
  form: Format;
  label: string;
  diagnostics: readonly Diagnostic[];
  onChange: (text: string) => void;
}

export default function Editor({ schema, text, form, label, diagnostics, onChange }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const onChangeRef = useRef(onChange);
  onChangeRef.current = onChange;
  const language = useRef(new Compartment());

  useEffect(() => {
    if (!host.current) return;
    const editor = new EditorView({
      parent: host.current,
      state: EditorState.create({
        doc: "",
        extensions: [
          EditorView.cspNonce.of(nonce),
          lineNumbers(),
          lintGutter(),
          history(),
          drawSelection(),
          indentOnInput(),
          bracketMatching(),
          highlightActiveLine(),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": label }),
          syntaxHighlighting(colors),
          language.current.of([]),
          autocompletion({ override: [(context) => complete(schema, context)], icons: false }),
          keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
          editorTheme,
          EditorView.updateListener.of((update) => {
            const isUser = update.transactions.some(
              (tr) =>
                tr.isUserEvent("input") ||
                tr.isUserEvent("delete") ||
                tr.isUserEvent("undo") ||
                tr.isUserEvent("redo") ||
                tr.isUserEvent("move"),
            );
            if (update.docChanged && isUser) onChangeRef.current(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = editor;
    return () => editor.destroy();
  }, [schema, label]);

  useEffect(() => {
    view.current?.dispatch({ effects: language.current.reconfigure(form === "yaml" ? yaml() : json()) });
  }, [form]);

  useEffect(() => {
    const now = view.current;
    if (!now || now.state.doc.toString() === text) return;
    // Only the changed part is replaced, so that the cursor keeps its position.
    const old = now.state.doc.toString();
    let from = 0;
    while (from < old.length && from < text.length && old[from] === text[from]) from += 1;
    let end = 0;
    while (end < old.length - from && end < text.length - from && old.at(-1 - end) === text.at(-1 - end))
      end += 1;
    now.dispatch({ changes: { from, to: old.length - end, insert: text.slice(from, text.length - end) } });
  }, [text]);

  useEffect(() => {
    const now = view.current;
    if (!now) return;
    const length = now.state.doc.length;
    const fit = diagnostics.map((d) => ({
      ...d,
      from: Math.min(d.from, length),
      to: Math.min(d.to, length),
    }));
    now.dispatch(setDiagnostics(now.state, fit));
  }, [diagnostics, text]);

  return <div ref={host} style={{ height: "100%", overflow: "hidden" }} />;
}

function complete(schema: SpecName, context: CompletionContext): CompletionResult | null {
  const line = context.state.doc.lineAt(context.pos);
  const before = line.text.slice(0, context.pos - line.from);
  const typed = /^(\s*)"?([\w.-]*)$/.exec(before);
  if (!typed || (typed[2] === "" && !context.explicit)) return null;
  const lines = context.state.doc.sliceString(0, line.from).split("\n");
  const options = completions(schema, lines, typed[1]?.length ?? 0);
  return options.length === 0 ? null : { from: context.pos - (typed[2]?.length ?? 0), options };
}
