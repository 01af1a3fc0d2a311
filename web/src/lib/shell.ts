/** Splitting and quoting of command lines. */

/** Quotes a word for a POSIX shell. */
export function quote(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

export function join(words: readonly string[]): string {
  return words.map(quote).join(" ");
}

/** Splits a command line with quotes and backslashes into words; null while a quote is open. */
export function split(line: string): string[] | null {
  const words: string[] = [];
  let word = "";
  let inWord = false;
  let quoted: '"' | "'" | null = null;
  for (let i = 0; i < line.length; i += 1) {
    const c = line[i] ?? "";
    if (quoted === "'") {
      if (c === "'") quoted = null;
      else word += c;
    } else if (c === "\\" && (quoted === null || /["\\$`\n]/.test(line[i + 1] ?? ""))) {
      i += 1;
      word += line[i] === "\n" ? "" : (line[i] ?? "");
      inWord = true;
    } else if (quoted === '"') {
      if (c === '"') quoted = null;
      else word += c;
    } else if (c === "'" || c === '"') {
      quoted = c;
      inWord = true;
    } else if (/\s/.test(c)) {
      if (inWord) words.push(word);
      word = "";
      inWord = false;
    } else {
      word += c;
      inWord = true;
    }
  }
  if (quoted !== null) return null;
  if (inWord) words.push(word);
  return words;
}
