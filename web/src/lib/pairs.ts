/** Names and values as lines of text. */

/**
 * Parses lines such as `NAME=VALUE`; a line without the separator is ignored. A separator that ends with a space, such as
 * `: `, is found without the space too, and the value has no spaces around it.
 */
export function parsePairs(text: string, separator: string): Record<string, string> {
  const mark = separator.trimEnd();
  const pairs = text.split("\n").flatMap((line) => {
    const at = line.indexOf(mark);
    if (at < 0) return [];
    const value = line.slice(at + mark.length);
    return [[line.slice(0, at).trim(), mark === separator ? value : value.trim()] as const];
  });
  return Object.fromEntries(pairs);
}
