//! Which texts of a process are programs: an interpreter reads them, so a value in them would run as code.
//!
//! ```text
//! env  FOO=1  bash  -lc  'load "$1"'  load  ${{ params.day }}
//! wrapper     known      program text  $0   argument: a value may stand here
//! ```
//!
//! Every word of a command that names a [known program](PROGRAMS) is looked at, wherever it stands: so wrappers such as
//! `docker exec`, `find -exec` and `kubectl exec` need no rule of their own. A word that no known program reads, and that
//! stands after `-c`, `-e`, `--eval` and the like, counts as program text if it looks like a program: a value alone
//! (`runner -c ${{ params.file }}`) does not.

mod programs;

use programs::{Arguments, Meaning, NO_PROGRAM_TEXT, Program, USUAL_FLAGS, WRAPPERS, bare, named};

use crate::spec::ProcessRun;
use crate::workflow::template::has_reference;

/// The most words of a command that may name a known program. Behind more of them every reference is refused, which
/// bounds the work: each of these words may need a look at all words behind it.
const PROGRAMS_MAX: usize = 32;

/// What a word of a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Text {
    /// The word of this number is, or has, program text.
    Word(usize),
    /// The standard input is.
    Stdin,
}

/// The texts of a process with references that its interpreters would read as programs.
pub(super) fn references_in_programs(process: &ProcessRun) -> Vec<Text> {
    let words = &process.command;
    let mut reading = Reading { words, texts: Vec::new(), is_read: vec![false; words.len()] };
    reading.read_known_programs();
    reading.read_unknown_programs();
    let mut found = reading.texts;
    let refers = |text: &Text| match text {
        Text::Word(at) => words.get(*at).is_some_and(|word| has_reference(word)),
        Text::Stdin => process.stdin.as_deref().is_some_and(has_reference),
    };
    found.retain(refers);
    found.sort_unstable();
    found.dedup();
    found
}

/// The word that names the container of `docker exec` and its like, which may be the name of a program.
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

/// What the program at the start of a command does with the words behind it.
#[derive(Clone, Copy)]
enum Starter {
    /// It starts the program that one of them names.
    Wrapper,
    /// It reads them itself.
    Known,
    /// It may start a program that one of them names; the word may also be anything else: `npm run watch`.
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

    /// Which texts of a program are refused that a word behind this one names.
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

/// Which texts of a program may not have references.
#[derive(Clone, Copy, PartialEq)]
enum Refused {
    All,
    /// Those that look like a program, because it is not sure that they are one.
    ProgramLike,
}

/// A command while its words are read.
struct Reading<'a> {
    words: &'a [String],
    /// What is program text.
    texts: Vec<Text>,
    /// The words of which a known program tells what they are.
    is_read: Vec<bool>,
}

impl Reading<'_> {
    fn read_known_programs(&mut self) {
        let words = self.words;
        let container = container(words);
        // The word that names the program of the command: the first, or the one that the tables tell of a wrapper.
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

    /// Of the words that no known program reads, notes those that an option says to be program text and that look like it.
    fn read_unknown_programs(&mut self) {
        for (at, word) in self.words.iter().enumerate().skip(1).filter(|(at, _)| !self.is_read[*at]) {
            let is_behind_flag = USUAL_FLAGS.contains(&self.words[at - 1].as_str());
            let has_flag = word.split_once('=').is_some_and(|(flag, _)| USUAL_FLAGS.contains(&flag));
            if (is_behind_flag || has_flag) && looks_like_a_program(value_of(word)) {
                self.texts.push(Text::Word(at));
            }
        }
    }

    /// Notes which of the words behind the name of a program are program text. Returns the place of the program that it
    /// starts, where the tables tell it.
    fn read(&mut self, program: &Program, place: usize, mut refused: Refused) -> Option<usize> {
        let words = self.words;
        let reads_files = program.arguments == Arguments::File;
        let mut at = place + 1;
        let mut arguments = 0;
        // Whether its program is given by an option, by a file or by an argument.
        let mut is_given = false;
        // Whether the next word is program text, but for options that may stand before it.
        let mut text_follows = false;
        // Whether the next word may be the value of the option before it.
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
                    // Without a program text, the next argument names the file with the program.
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
                        // A module may be a known program: `python3 -m timeit TEXT`.
                        return file.and_then(|module| named(module)).map(|_| at - 1);
                    }
                }
                Meaning::Argument => match program.arguments {
                    // It may be the file; then the options behind it are its own.
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
                        // Options behind it are text too: `ssh HOST rm -f FILE`.
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

    /// Notes that a word is program text.
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

    /// Notes that a known program reads all words from this one on, and that it starts none that they name.
    fn ends(&mut self, at: usize) -> Option<usize> {
        self.is_read.iter_mut().skip(at).for_each(|is_read| *is_read = true);
        None
    }
}

/// Whether the name of a file means the standard input.
fn is_stdin(file: &str) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].contains(&file)
}

/// The value of an option that has one in its word; else the word.
fn value_of(word: &str) -> &str {
    word.split_once('=').filter(|_| word.starts_with('-')).map_or(word, |(_, value)| value)
}

/// Whether there is more around a reference than a name, a number or the value of a setting (`-e NAME=VALUE`) would have.
/// A setting may be a command that a shell runs: `alias.load=!TEXT` of Git.
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
