//! Finds the texts of a process that are program code. An interpreter reads them, so the value of a reference would
//! run as code.
//!
//! ```text
//! env  FOO=1  bash  -lc  'load "$1"'  load  ${{ params.day }}
//! wrapper     known      program text  $0   argument: a value is allowed
//! ```
//!
//! Every word of a command that names a [known program](PROGRAMS) is checked, wherever it is. So wrappers such as
//! `docker exec`, `find -exec` and `kubectl exec` need no rule of their own. A word that no known program reads, and
//! that follows `-c`, `-e`, `--eval` or a similar option, counts as code if it looks like code. A value alone
//! (`runner -c ${{ params.file }}`) does not.

mod programs;

use programs::{Arguments, Meaning, NO_PROGRAM_TEXT, Program, USUAL_FLAGS, WRAPPERS, bare, named};

use crate::workflow::template::has_reference;

/// Maximum number of words of a command that name known programs. After that, every reference is rejected. This
/// bounds the work: each of these words may need a look at all following words.
const PROGRAMS_MAX: usize = 32;

/// A text of a process that is program code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Text {
    /// The word of the command with this index is, or contains, program code.
    Word(usize),
    /// The standard input is program code.
    Stdin,
}

/// Returns the texts with references that an interpreter would read as program code.
pub(super) fn references_in_programs(words: &[String], stdin: Option<&str>) -> Vec<Text> {
    let mut reading = Reading { words, texts: Vec::new(), is_read: vec![false; words.len()] };
    reading.read_known_programs();
    reading.read_unknown_programs();
    let mut found = reading.texts;
    let refers = |text: &Text| match text {
        Text::Word(at) => words.get(*at).is_some_and(|word| has_reference(word)),
        Text::Stdin => stdin.is_some_and(has_reference),
    };
    found.retain(refers);
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the index of the word that names the container of `docker exec` and similar commands. It may be the name
/// of a program.
fn container(words: &[String]) -> Option<usize> {
    let takes_value = match bare(words.first()?) {
        "docker" | "podman" | "nerdctl" => {
            ["-e", "--env", "--env-file", "-u", "--user", "-w", "--workdir"].as_slice()
        }
        "kubectl" | "oc" => ["-c", "--container", "-n", "--namespace", "-f", "--filename"].as_slice(),
        _ => return None,
    };
    let mut at = words.iter().position(|word| word == "exec")? + 1;
    while let Some(word) = words.get(at).filter(|word| word.len() > 1 && word.starts_with('-')) {
        at += if takes_value.contains(&word.as_str()) { 2 } else { 1 };
    }
    Some(at)
}

/// How the first program of a command uses the following words.
#[derive(Clone, Copy)]
enum Starter {
    /// Starts the program that one of the words names.
    Wrapper,
    /// Reads the words itself.
    Known,
    /// May start a program that one of the words names; the word may also be anything else: `npm run watch`.
    Unknown,
}

impl Starter {
    fn of(word: &str) -> Self {
        match named(word).map(|program| program.arguments) {
            _ if WRAPPERS.contains(&bare(word)) => Self::Wrapper,
            Some(Arguments::CommandFrom(_)) => Self::Wrapper,
            Some(_) => Self::Known,
            None if NO_PROGRAM_TEXT.contains(&bare(word)) => Self::Known,
            None => Self::Unknown,
        }
    }

    /// Returns which texts to reject of a program that a following word names.
    fn refused(self, arguments: Arguments) -> Option<Refused> {
        match (self, arguments) {
            (_, Arguments::File) | (Self::Wrapper, _) | (Self::Unknown, Arguments::Text) => {
                Some(Refused::All)
            }
            (Self::Unknown, Arguments::TextFrom(_)) => Some(Refused::ProgramLike),
            _ => None,
        }
    }
}

/// Texts of a program that must not have references.
#[derive(Clone, Copy, PartialEq)]
enum Refused {
    All,
    /// Only texts that look like code, because it is uncertain whether they are code.
    ProgramLike,
}

/// State while the words of a command are read.
struct Reading<'a> {
    words: &'a [String],
    /// Texts that are program code.
    texts: Vec<Text>,
    /// Words whose meaning is determined by a known program.
    is_read: Vec<bool>,
}

impl Reading<'_> {
    fn read_known_programs(&mut self) {
        let words = self.words;
        let container = container(words);
        // Index of the word that names the program of the command: the first word, or the one after a wrapper.
        let mut start = 0;
        let mut starter = Starter::Known;
        let mut programs = 0;
        for (place, word) in words.iter().enumerate().filter(|(place, _)| container != Some(*place)) {
            if place == start {
                starter = Starter::of(word);
                if NO_PROGRAM_TEXT.contains(&bare(word)) {
                    self.is_read[place..].fill(true);
                }
            }
            let Some(program) = named(word) else { continue };
            let refused =
                if place == start { Some(Refused::All) } else { starter.refused(program.arguments) };
            let Some(refused) = refused else { continue };
            programs += 1;
            if programs > PROGRAMS_MAX {
                self.texts.extend((place..words.len()).map(Text::Word));
                return;
            }
            if let Some(command) = self.read(program, place, refused) {
                start = command;
            }
        }
    }

    /// Marks the words that no known program reads, follow an option for code, and look like code.
    fn read_unknown_programs(&mut self) {
        for (at, word) in self.words.iter().enumerate().skip(1).filter(|(at, _)| !self.is_read[*at]) {
            let is_behind_flag = USUAL_FLAGS.contains(&self.words[at - 1].as_str());
            let has_flag = word.split_once('=').is_some_and(|(flag, _)| USUAL_FLAGS.contains(&flag));
            if (is_behind_flag || has_flag) && looks_like_a_program(value_of(word)) {
                self.texts.push(Text::Word(at));
            }
        }
    }

    /// Marks the program code among the words after the name of a program. Returns the index of the program that this
    /// program starts, if the table has it.
    fn read(&mut self, program: &Program, place: usize, mut refused: Refused) -> Option<usize> {
        let words = self.words;
        let reads_files = program.arguments == Arguments::File;
        let mut at = place + 1;
        let mut arguments = 0;
        // Whether the code is given by an option, a file or an argument.
        let mut is_given = false;
        // Whether the next word is program code, apart from options before it.
        let mut text_follows = false;
        // Whether the next word can be the value of the option before it.
        let mut value_follows = false;
        while let Some(word) = words.get(at) {
            let here = at;
            at += 1;
            let meaning = program.meaning(word);
            let may_be_value = std::mem::take(&mut value_follows);
            let is_argument = matches!(meaning, Meaning::Argument);
            if text_follows && (is_argument || !program.options_before_text) {
                self.text(here, refused);
                text_follows = false;
                if reads_files && program.text_is_last {
                    return self.ends(at);
                }
                if is_argument {
                    continue;
                }
            }
            match meaning {
                Meaning::Option if word == "--" && reads_files && !text_follows => {
                    // Without code, the next argument names the program file.
                    self.stdin_if(!is_given && program.reads_stdin && at == words.len());
                    return self.ends(at);
                }
                Meaning::Option => {}
                Meaning::UnknownOption => value_follows = true,
                Meaning::Takes(count) => at += count,
                Meaning::Text => {
                    is_given = true;
                    self.text(here, refused);
                }
                Meaning::TextNext => (is_given, text_follows) = (true, true),
                Meaning::Stdin => {
                    is_given = true;
                    self.stdin_if(refused == Refused::All);
                    if reads_files {
                        return self.ends(at);
                    }
                }
                Meaning::File | Meaning::FileNext => {
                    is_given = true;
                    let file = words.get(at).filter(|_| matches!(meaning, Meaning::FileNext));
                    at += usize::from(file.is_some());
                    self.stdin_if(file.is_some_and(|file| is_stdin(file)));
                    if matches!(program.arguments, Arguments::File | Arguments::TextFrom(_)) {
                        self.ends(at);
                        // A module can be a known program: `python3 -m timeit TEXT`.
                        return file.and_then(|module| named(module)).map(|_| at - 1);
                    }
                }
                Meaning::Argument => match program.arguments {
                    // The word can be the program file; then the following options belong to that program.
                    Arguments::File if may_be_value => (refused, is_given) = (Refused::ProgramLike, true),
                    Arguments::File => {
                        self.stdin_if(!is_given && is_stdin(word));
                        return self.ends(at);
                    }
                    // `env NAME=VALUE … PROGRAM`.
                    Arguments::CommandFrom(0) if word.contains('=') => {}
                    Arguments::CommandFrom(first) if arguments >= first => {
                        self.is_read[place..here].fill(true);
                        return (!may_be_value).then_some(here);
                    }
                    Arguments::Text if !is_given => {
                        is_given = true;
                        self.text(here, refused);
                    }
                    Arguments::TextFrom(first) if arguments >= first => {
                        // Options after it are also part of the code: `ssh HOST rm -f FILE`.
                        (here..words.len()).for_each(|at| self.text(at, refused));
                        is_given = true;
                        break;
                    }
                    _ => arguments += 1,
                },
            }
        }
        if refused == Refused::All {
            self.stdin_if(program.reads_stdin && !is_given);
            return self.ends(place);
        }
        None
    }

    /// Marks a word as program code.
    fn text(&mut self, at: usize, refused: Refused) {
        if refused == Refused::All || looks_like_a_program(value_of(&self.words[at])) {
            self.texts.push(Text::Word(at));
        }
    }

    fn stdin_if(&mut self, is_program: bool) {
        if is_program {
            self.texts.push(Text::Stdin);
        }
    }

    /// Marks all words from `at` on as read by a known program that starts no program named by them.
    fn ends(&mut self, at: usize) -> Option<usize> {
        self.is_read.iter_mut().skip(at).for_each(|is_read| *is_read = true);
        None
    }
}

/// Whether a file name means the standard input.
fn is_stdin(file: &str) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].contains(&file)
}

/// Returns the value of an option that contains one; otherwise the word itself.
fn value_of(word: &str) -> &str {
    word.split_once('=').filter(|_| word.starts_with('-')).map_or(word, |(_, value)| value)
}

/// Whether the text around a reference is more than a name, a number or a setting (`-e NAME=VALUE`) has. A setting
/// can be a shell command: `alias.load=!TEXT` of Git.
fn looks_like_a_program(text: &str) -> bool {
    let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || "_.-".contains(c));
    let setting = text.split_once('=').filter(|(name, _)| !name.is_empty() && is_name(name));
    if has_reference(text) && setting.is_some_and(|(_, value)| value.starts_with('!')) {
        return true;
    }
    let marks: &[char] = match setting.is_some() {
        true => &['\n', ';', '(', ')', '`', '|', '&', '<', '>', '{'],
        false => &[' ', '\n', '\t', ';', '(', ')', '\'', '"', '`', '|', '&', '<', '>', '{'],
    };
    let mut rest = text;
    while let Some(at) = rest.find("${{") {
        let (before, inner) = rest.split_at(at);
        let after = inner.find("}}").map_or("", |end| &inner[end + 2..]);
        if before.contains(marks) || (!after.contains("${{") && after.contains(marks)) {
            return true;
        }
        rest = after;
    }
    false
}

#[cfg(test)]
mod tests;
