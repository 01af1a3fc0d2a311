//! Checks of the language rules: replaced words, and sentences that are too long.
//!
//! A check takes a text, not a file, so that pages, help texts and API descriptions follow the same rules.
//! Code is ignored: text between backticks, and code blocks in Markdown.
//!
//! [`replaced_words`] finds the words of one table, with their replacements; [`long_sentences`] is for
//! Markdown pages only. The test `language` of the whole-system tests applies both. A new word is added to
//! the table together with its replacement.

use std::fmt;

/// Maximum number of words in a sentence.
pub const SENTENCE_WORDS_MAX: usize = 30;

/// Words that must not be used, with their replacements. The parts of a phrase may be on two lines.
const REPLACED: &[(&str, &str)] = &[
    ("reign", "leadership"),
    ("heir", "standby"),
    ("ascend", "take over"),
    ("gives away", "hands over"),
    ("give away", "hand over"),
    ("a flight", "an in-flight commit"),
    ("flights", "in-flight commits"),
    ("misfit", "waiting reason"),
    ("instant", "scheduled time, or time"),
    ("instants", "scheduled times, or times"),
    ("come due", "fire, or become ready"),
    ("comes due", "fires, or becomes ready"),
    ("foretell", "forecast"),
    ("foretells", "forecasts"),
    ("foretold", "forecast"),
    ("made up for", "backfilled, or caught up"),
    ("make up for", "backfill, or catch up"),
    ("tried again", "retried"),
    ("a try", "an attempt"),
    ("anew", "again"),
    ("go on", "continue"),
    ("goes on", "continues"),
    ("went on", "continued"),
    ("going on", "running, or happening"),
    ("come to nothing", "fail"),
    ("comes to nothing", "fails"),
    ("set aside", "reserve, or quarantine"),
    ("made true", "committed"),
    ("where absent", "[default: …]"),
    ("so long", "the duration"),
    ("so many", "the number"),
    ("so often", "the number of times"),
    ("so much", "the amount"),
    ("as may be", "the limit"),
    ("look after", "manage"),
    ("looks after", "manages"),
    ("answers for", "owner"),
    ("stands where", "explain the status"),
    ("somebody", "a user, an operator, or another process"),
    ("nobody", "no user, or no server"),
    ("whoever", "the user, or the client"),
    ("is told", "gets, or is notified"),
    ("are told", "get, or are notified"),
    ("tells the rest", "see … for details"),
    ("says the rest", "see … for details"),
];

/// A violation of a language rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Line number, from 1.
    pub line: usize,
    /// The problem.
    pub what: String,
    /// The proposed replacement.
    pub instead: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; write: {}", self.line, self.what, self.instead)
    }
}

/// Returns the replaced words that occur in a text.
pub fn replaced_words(text: &str) -> Vec<Finding> {
    let prose = without_code(text).to_lowercase();
    let mut found = Vec::new();
    for (word, instead) in REPLACED {
        for at in occurrences(&prose, word) {
            let line = prose[..at].matches('\n').count() + 1;
            found.push(Finding { line, what: format!("`{word}`"), instead: (*instead).to_owned() });
        }
    }
    found.sort_by_key(|finding| finding.line);
    found
}

/// Returns the sentences of a Markdown page with more than [`SENTENCE_WORDS_MAX`] words. Tables and headings are
/// ignored.
pub fn long_sentences(page: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (line, paragraph) in paragraphs(&without_code(page)) {
        for sentence in sentences(&paragraph) {
            let words =
                sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
            if words > SENTENCE_WORDS_MAX {
                let begin: String = sentence.chars().take(50).collect();
                found.push(Finding {
                    line,
                    what: format!("a sentence of {words} words: `{begin}…`"),
                    instead: format!("sentences of at most {SENTENCE_WORDS_MAX} words"),
                });
            }
        }
    }
    found
}

/// Returns the positions of a word or phrase, with any white space between its parts.
fn occurrences(text: &str, word: &str) -> Vec<usize> {
    let parts: Vec<&str> = word.split(' ').collect();
    let is_letter = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(parts[0])
        .filter(|(at, _)| !text[..*at].chars().next_back().is_some_and(is_letter))
        .filter(|(at, _)| {
            let mut rest = &text[*at..];
            for (i, part) in parts.iter().enumerate() {
                if i > 0 {
                    let trimmed = rest.trim_start();
                    if trimmed.len() == rest.len() {
                        return false;
                    }
                    rest = trimmed;
                }
                let Some(after) = rest.strip_prefix(part) else { return false };
                rest = after;
            }
            !rest.chars().next().is_some_and(is_letter)
        })
        .map(|(at, _)| at)
        .collect()
}

/// Replaces the code in a text by `x`; keeps the lines.
fn without_code(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut in_block = false;
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().trim_start_matches("//").trim_start().starts_with("```");
        in_block ^= is_fence;
        if in_block || is_fence {
            prose.push('\n');
        } else {
            let mut is_code = false;
            for (i, part) in line.split('`').enumerate() {
                is_code = i % 2 == 1;
                prose.push_str(if is_code { "x" } else { part });
            }
            if is_code && line.ends_with('\n') {
                prose.push('\n');
            }
        }
    }
    prose
}

/// Returns the paragraphs and list items of a page, each with its first line.
fn paragraphs(page: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (i, line) in page.lines().enumerate() {
        let text = line.trim();
        let is_item =
            text.starts_with("- ") || text.split_once(". ").is_some_and(|(n, _)| n.parse::<u8>().is_ok());
        let is_prose = !text.is_empty() && !text.starts_with(['|', '#', '<', '>', '!']);
        match is_prose {
            true if continues && !is_item => {
                let (_, paragraph) = found.last_mut().expect("it has begun");
                paragraph.push(' ');
                paragraph.push_str(text);
            }
            true => found.push((i + 1, text.to_owned())),
            false => {}
        }
        continues = is_prose;
    }
    found
}

/// Splits a paragraph at full stops, question marks, colons and semicolons that end a clause.
fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut from = 0;
    for (at, c) in paragraph.char_indices() {
        let ends = matches!(c, '.' | '?' | '!' | ':' | ';');
        if ends && paragraph[at + c.len_utf8()..].starts_with([' ', ')', '*']) {
            found.push(&paragraph[from..at]);
            from = at + c.len_utf8();
        }
    }
    found.push(&paragraph[from..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_word_is_found_with_its_line_and_its_proposal() {
        let found = replaced_words("The job\ngoes\non, `goes on`, and ongoing.\n");
        let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["2: `goes on`; write: continues"]);
    }

    #[test]
    fn a_word_within_another_word_is_not_reported() {
        assert_eq!(replaced_words("a foreign heirloom of light-flights"), []);
    }

    #[test]
    fn code_is_not_read() {
        assert_eq!(replaced_words("```\nnobody\n```\n`nobody`\n"), []);
    }

    #[test]
    fn a_long_sentence_of_a_paragraph_or_an_item_is_found() {
        let long = "word ".repeat(31);
        assert_eq!(long_sentences(&format!("# {long}\n\n| {long} |\n\nShort. {long}.\n"))[0].line, 5);
        assert_eq!(long_sentences(&format!("- short\n- {long}\n"))[0].line, 2);
        assert_eq!(long_sentences(&"word ".repeat(30)), []);
    }
}
