/** Actions that a user types in the command palette, such as `pause nightly`. */

export const VERBS = [
  "pause",
  "resume",
  "trigger",
  "start",
  "cordon",
  "uncordon",
  "drain",
  "cancel",
  "retry",
] as const;
export type Verb = (typeof VERBS)[number];

/** A verb, and the rest of the text: a part of the name of its object. */
export interface TypedAction {
  verb: Verb;
  name: string;
}

/** Letters of an English verb from which it is recognized; a Chinese word is recognized from its first character. */
const PREFIX_MIN = 2;

/**
 * Returns the actions that a text may mean. Each verb is recognized by its English word and by that of the current
 * language, `wordOf`. A Chinese word needs no space after it.
 */
export function typedActions(text: string, wordOf: (verb: Verb) => string): TypedAction[] {
  const typed = text.trim().toLowerCase();
  if (typed === "") return [];
  return VERBS.flatMap((verb): TypedAction[] => {
    for (const word of new Set([verb, wordOf(verb).toLowerCase()])) {
      const isLatin = /^[a-z]/.test(word);
      if (word.startsWith(typed)) return typed.length >= PREFIX_MIN || !isLatin ? [{ verb, name: "" }] : [];
      const rest = typed.slice(word.length);
      if (typed.startsWith(word) && (!isLatin || rest.startsWith(" "))) return [{ verb, name: rest.trim() }];
    }
    return [];
  });
}
