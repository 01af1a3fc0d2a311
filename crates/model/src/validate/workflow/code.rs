//! Which texts of a process are programs: an interpreter reads them, so a value in them would run as code.
//!
//! ```text
//! env  FOO=1  bash  -lc  'load "$1"'  load  ${{ params.day }}
//! wrapper     known      program text  $0   argument: a value may stand here
//! ```
//!
//! Every word of a command that names a [known program](PROGRAMS) is looked at, wherever it stands: so wrappers such as
//! `env`, `sudo`, `timeout`, `xargs`, `find -exec` and `docker exec` need no rule of their own. Of a program that is not
//! known, the text after `-c`, `-e`, `--eval` and the like is taken for a program if it looks like one: a value alone
//! (`nginx -c ${{ params.file }}`) does not.

use crate::spec::ProcessRun;
use crate::workflow::template::has_reference;

/// How a program is told what to run.
struct Program {
    /// Its names, without folders and version.
    names: &'static [&'static str],
    /// Options of one letter after which program text follows.
    text: &'static str,
    /// The same of whole words; `--eval=TEXT` too.
    text_words: &'static [&'static str],
    /// Options of one letter with a value that is no program.
    takes: &'static str,
    /// The same of whole words, with the number of their values.
    takes_words: &'static [(&'static str, usize)],
    /// Options that name a file with the program, so that no argument is one.
    file: &'static str,
    /// The same of whole words.
    file_words: &'static [&'static str],
    arguments: Arguments,
    /// Whether it reads its program from the standard input where it is given none.
    reads_stdin: bool,
    /// Whether letters after that of the text are further options: `sh -cx TEXT`.
    letters_go_on: bool,
}

/// What the arguments of a program are that are no options.
#[derive(Clone, Copy, PartialEq)]
enum Arguments {
    /// The first names a file with the program, or a module; the others are its own.
    File,
    /// The first is program text, the others are files.
    Text,
    /// All from this one on are program text.
    TextFrom(usize),
    /// None is.
    Plain,
    /// The one of this number, counted from 0, names a program, and what follows is that one's.
    CommandFrom(usize),
}

/// What most programs have.
const USUAL: Program = Program {
    names: &[],
    text: "",
    text_words: &[],
    takes: "",
    takes_words: &[],
    file: "",
    file_words: &[],
    arguments: Arguments::File,
    reads_stdin: false,
    letters_go_on: false,
};

/// The programs that are known to read program text.
const PROGRAMS: &[Program] = &[
    Program {
        names: &[
            "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "csh", "tcsh", "yash", "nu",
        ],
        text: "c",
        text_words: &["--command", "--init-command", "-C"],
        takes: "oO",
        takes_words: &[("--rcfile", 1), ("--init-file", 1)],
        reads_stdin: true,
        letters_go_on: true,
        ..USUAL
    },
    Program {
        names: &["python", "pypy", "ipython", "micropython"],
        text: "c",
        takes: "WXQ",
        takes_words: &[("--check-hash-based-pycs", 1)],
        file: "m",
        reads_stdin: true,
        ..USUAL
    },
    Program { names: &["perl", "raku"], text: "eE", takes: "I", reads_stdin: true, ..USUAL },
    Program {
        names: &["ruby", "jruby", "mruby", "crystal"],
        text: "e",
        takes: "rICEFKTW",
        reads_stdin: true,
        ..USUAL
    },
    Program {
        names: &["node", "nodejs", "bun", "ts-node", "tsx"],
        text: "ep",
        text_words: &["--eval", "--print"],
        takes: "rC",
        takes_words: &[("--require", 1), ("--import", 1), ("--loader", 1), ("--conditions", 1)],
        reads_stdin: true,
        letters_go_on: true,
        ..USUAL
    },
    Program {
        names: &["php"],
        text: "rBRE",
        text_words: &["--run", "--process-begin", "--process-code", "--process-end"],
        takes: "dctzS",
        file: "fF",
        reads_stdin: true,
        ..USUAL
    },
    Program { names: &["lua", "luajit", "texlua"], text: "e", takes: "l", reads_stdin: true, ..USUAL },
    Program { names: &["Rscript", "R", "littler"], text: "e", takes: "fg", reads_stdin: true, ..USUAL },
    Program {
        names: &["julia"],
        text: "eE",
        text_words: &["--eval", "--print"],
        takes: "LpJtHC",
        reads_stdin: true,
        ..USUAL
    },
    Program {
        names: &[
            "elixir",
            "iex",
            "groovy",
            "scala",
            "clojure",
            "clj",
            "bb",
            "ghc",
            "runghc",
            "racket",
            "osascript",
        ],
        text: "e",
        text_words: &["--eval", "--rpc-eval"],
        ..USUAL
    },
    Program { names: &["erl"], text_words: &["-eval"], ..USUAL },
    Program {
        names: &["guile", "expect", "tclsh", "gosh", "chibi-scheme"],
        text: "c",
        reads_stdin: true,
        ..USUAL
    },
    Program {
        names: &["pwsh", "powershell", "cmd"],
        text_words: &["-command", "-c", "-encodedcommand", "/c", "/k"],
        file_words: &["-file", "-f"],
        arguments: Arguments::TextFrom(0),
        ..USUAL
    },
    Program { names: &["deno"], text_words: &["eval"], ..USUAL },
    Program {
        names: &["psql"],
        text: "c",
        text_words: &["--command"],
        takes: "dhLopPRTUvF",
        file: "f",
        file_words: &["--file"],
        arguments: Arguments::Plain,
        reads_stdin: true,
        ..USUAL
    },
    Program {
        names: &["mysql", "mariadb", "mycli", "pgcli"],
        text: "e",
        text_words: &["--execute", "--init-command"],
        takes: "DhPSu",
        arguments: Arguments::Plain,
        reads_stdin: true,
        ..USUAL
    },
    Program {
        names: &["clickhouse-client", "clickhouse-local", "clickhouse"],
        text: "q",
        text_words: &["--query"],
        arguments: Arguments::Plain,
        ..USUAL
    },
    Program { names: &["mongo", "mongosh"], text_words: &["--eval"], arguments: Arguments::Plain, ..USUAL },
    Program {
        names: &["sqlite", "duckdb"],
        text: "cs",
        text_words: &["-cmd", "--cmd"],
        arguments: Arguments::TextFrom(1),
        reads_stdin: true,
        ..USUAL
    },
    Program {
        names: &["awk", "gawk", "mawk", "nawk", "original-awk"],
        text: "e",
        text_words: &["--source"],
        takes: "Fvil",
        takes_words: &[("--assign", 1), ("--field-separator", 1), ("--include", 1), ("--load", 1)],
        file: "fE",
        arguments: Arguments::Text,
        ..USUAL
    },
    Program {
        names: &["sed", "gsed"],
        text: "e",
        text_words: &["--expression"],
        takes: "l",
        file: "f",
        arguments: Arguments::Text,
        ..USUAL
    },
    Program {
        names: &["jq", "gojq", "jaq", "yq"],
        takes: "L",
        takes_words: &[("--arg", 2), ("--argjson", 2), ("--slurpfile", 2), ("--rawfile", 2), ("--indent", 1)],
        file: "f",
        arguments: Arguments::Text,
        ..USUAL
    },
    Program { names: &["ssh"], takes: "BbcDEeFIiJLlmOopQRSWw", arguments: Arguments::TextFrom(1), ..USUAL },
    Program {
        names: &["su", "runuser", "sg", "script"],
        text: "c",
        text_words: &["--command", "--session-command"],
        takes: "gGswT",
        arguments: Arguments::Plain,
        ..USUAL
    },
    Program {
        names: &["flock"],
        text: "c",
        text_words: &["--command"],
        takes: "wE",
        takes_words: &[("--timeout", 1), ("--wait", 1), ("--conflict-exit-code", 1)],
        arguments: Arguments::CommandFrom(1),
        ..USUAL
    },
    Program { names: &["watch", "parallel"], takes: "njP", arguments: Arguments::TextFrom(0), ..USUAL },
    Program {
        names: &["env"],
        text: "S",
        text_words: &["--split-string"],
        takes: "uC",
        takes_words: &[("--unset", 1), ("--chdir", 1)],
        arguments: Arguments::CommandFrom(0),
        ..USUAL
    },
    Program {
        names: &["nix-shell"],
        text_words: &["--run", "--command"],
        arguments: Arguments::Plain,
        ..USUAL
    },
];

/// Programs that start another one, which their arguments name.
const WRAPPERS: [&str; 30] = [
    "env",
    "sudo",
    "doas",
    "nice",
    "ionice",
    "chrt",
    "timeout",
    "nohup",
    "setsid",
    "time",
    "stdbuf",
    "chroot",
    "xargs",
    "find",
    "busybox",
    "docker",
    "podman",
    "nerdctl",
    "kubectl",
    "flock",
    "ssh",
    "su",
    "runuser",
    "unshare",
    "nsenter",
    "systemd-run",
    "command",
    "exec",
    "setpriv",
    "taskset",
];

/// Options of programs that are not known after which program text may follow.
const USUAL_FLAGS: [&str; 8] = ["-c", "-e", "-lc", "-ec", "--eval", "--exec", "--execute", "--command"];

/// Programs of which no option has program text.
const NO_PROGRAM_TEXT: [&str; 8] = ["grep", "egrep", "fgrep", "rg", "tar", "ping", "nginx", "curl"];

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
    let mut found = Vec::new();
    let first = words.first().map_or("", |first| bare(first));
    let mut known = NO_PROGRAM_TEXT.contains(&first);
    let is_wrapped = WRAPPERS.contains(&first);
    let container = container(words);
    for (place, word) in words.iter().enumerate().filter(|(place, _)| container != Some(*place)) {
        // A word behind another program may be anything: `npm run watch`.
        let runs = |program: &&Program| place == 0 || is_wrapped || program.arguments == Arguments::File;
        if let Some(program) = named(word).filter(runs) {
            known = true;
            program.texts(words, place, &mut found);
        }
    }
    if !known {
        let after_flag =
            |at: &usize| words[at - 1..*at].iter().any(|flag| USUAL_FLAGS.contains(&flag.as_str()));
        let looks_like_one = |at: &usize| looks_like_a_program(&words[*at]);
        found.extend((1..words.len()).filter(after_flag).filter(looks_like_one).map(Text::Word));
    }
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
    while let Some(word) = words.get(at).filter(|word| is_option(word)) {
        at += if takes_value.contains(&word.as_str()) { 2 } else { 1 };
    }
    Some(at)
}

/// The program that a word names: without its folder and its version.
fn named(word: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.names.contains(&bare(word)))
}

/// The name of a program without its folder and its version: `python` of `/usr/bin/python3.11`.
fn bare(word: &str) -> &str {
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

/// Whether there is more around a reference than a name, a number or the value of a setting (`-e NAME=VALUE`) would have.
fn looks_like_a_program(text: &str) -> bool {
    let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || "_.-".contains(c));
    let is_setting = text.split_once('=').is_some_and(|(name, _)| !name.is_empty() && is_name(name));
    let marks: &[char] = match is_setting {
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

impl Program {
    /// Notes which of the words behind its own are program text.
    fn texts(&self, words: &[String], place: usize, found: &mut Vec<Text>) {
        let mut at = place + 1;
        let mut arguments = 0;
        // Whether its program is given by an option, or by a file.
        let mut is_given = false;
        // Whether the next argument is program text: options may stand before it.
        let mut text_follows = false;
        while let Some(word) = words.get(at) {
            at += 1;
            let lower = word.to_ascii_lowercase();
            let (name, value) =
                word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
            if self.text_words.iter().any(|flag| *flag == name || *flag == lower) {
                is_given = true;
                match value {
                    Some(_) => found.push(Text::Word(at - 1)),
                    None => text_follows = true,
                }
            } else if text_follows && !(self.letters_go_on && is_option(word)) {
                found.push(Text::Word(at - 1));
                text_follows = false;
                if self.arguments == Arguments::File {
                    // What comes behind it are the arguments of the program.
                    return;
                }
            } else if self.file_words.iter().any(|flag| *flag == name || *flag == lower) {
                if self.arguments != Arguments::Plain {
                    // What comes behind the file are the arguments of the program.
                    return;
                }
                is_given = true;
                at += usize::from(value.is_none());
            } else if let Some((_, count)) = self.takes_words.iter().find(|(flag, _)| *flag == name) {
                at += count - usize::from(value.is_some());
            } else if word == "--" || word == "-" {
                if word == "-" && self.reads_stdin {
                    found.push(Text::Stdin);
                    is_given = true;
                    if self.arguments == Arguments::File {
                        return;
                    }
                }
            } else if is_option(word) {
                match self.option(word) {
                    Letter::Nothing => {}
                    Letter::TakesNext => at += 1,
                    Letter::TextHere => {
                        is_given = true;
                        found.push(Text::Word(at - 1));
                    }
                    Letter::TextNext => (is_given, text_follows) = (true, true),
                    Letter::FileHere => is_given = true,
                    Letter::FileNext => {
                        is_given = true;
                        at += 1;
                    }
                }
                if is_given && self.file_ends_options(word) {
                    return;
                }
            } else {
                match self.arguments {
                    Arguments::File => return,
                    // `env NAME=VALUE … PROGRAM`.
                    Arguments::CommandFrom(0) if value.is_some() => continue,
                    Arguments::Text if !is_given => {
                        found.push(Text::Word(at - 1));
                        is_given = true;
                    }
                    Arguments::TextFrom(first) if arguments >= first => {
                        found.push(Text::Word(at - 1));
                        is_given = true;
                    }
                    Arguments::CommandFrom(first) if arguments >= first => return,
                    Arguments::Text
                    | Arguments::TextFrom(_)
                    | Arguments::Plain
                    | Arguments::CommandFrom(_) => {}
                }
                arguments += 1;
            }
        }
        if self.reads_stdin && !is_given {
            found.push(Text::Stdin);
        }
    }

    /// Whether what follows `-m MODULE`, or `-f FILE` of an interpreter, is the program's own.
    fn file_ends_options(&self, word: &str) -> bool {
        self.arguments == Arguments::File
            && !word.starts_with("--")
            && word.chars().skip(1).any(|letter| self.file.contains(letter))
    }

    /// What an option of letters says.
    fn option(&self, word: &str) -> Letter {
        if word.starts_with("--") {
            return Letter::Nothing;
        }
        // What begins with a reference is the value of the letter before it.
        let letters = word[1..].split('$').next().unwrap_or_default();
        if self.letters_go_on && letters.chars().any(|letter| self.text.contains(letter)) {
            return Letter::TextNext;
        }
        for (place, letter) in letters.char_indices() {
            let is_last = word[1 + place..].chars().count() == 1;
            if self.text.contains(letter) {
                return if is_last { Letter::TextNext } else { Letter::TextHere };
            }
            if self.file.contains(letter) {
                return if is_last { Letter::FileNext } else { Letter::FileHere };
            }
            if self.takes.contains(letter) {
                return if is_last { Letter::TakesNext } else { Letter::Nothing };
            }
        }
        Letter::Nothing
    }
}

/// What comes of an option of letters.
enum Letter {
    Nothing,
    TakesNext,
    TextHere,
    TextNext,
    FileHere,
    FileNext,
}

fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with(['-', '+'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "${{ params.day }}";

    /// The words of a command, with `@` for a reference, that are program text with one.
    fn found(command: &[&str]) -> Vec<usize> {
        let command: Vec<String> = command.iter().map(|word| word.replace('@', VALUE)).collect();
        let stdin = Some(VALUE.to_owned());
        let texts = references_in_programs(&ProcessRun { command, stdin, ..ProcessRun::default() });
        texts.into_iter().map(|text| if let Text::Word(at) = text { at } else { 99 }).collect()
    }

    /// C2. Whatever the interpreter and whoever starts it, its program has no reference.
    #[test]
    fn a_reference_in_a_program_is_found() {
        for (command, text) in [
            (&["sh", "-c", "echo @"][..], 2),
            (&["/bin/bash", "-lc", "@"], 2),
            (&["bash", "-o", "pipefail", "-ec", "echo @"], 4),
            (&["bash", "-c", "-x", "echo @", "arg"], 3),
            (&["busybox", "sh", "-c", "echo @"], 3),
            (&["python3", "-c", "print('@')"], 2),
            (&["/usr/bin/python3.11", "-W", "ignore", "-Ic", "print('@')"], 4),
            (&["python", "-cprint('@')"], 1),
            (&["perl", "-Mstrict", "-ne", "print '@'"], 3),
            (&["perl", "-I", "lib", "-E", "say '@'"], 4),
            (&["ruby", "-rjson", "-e", "puts '@'"], 3),
            (&["node", "--require", "x", "--eval", "f('@')"], 4),
            (&["node", "--eval=f('@')"], 1),
            (&["node", "-pe", "@"], 2),
            (&["php", "-r", "echo '@';"], 2),
            (&["lua5.4", "-e", "print('@')"], 2),
            (&["Rscript", "-e", "print('@')"], 2),
            (&["env", "sh", "-c", "echo @"], 3),
            (&["env", "-S", "sh -c @"], 2),
            (&["sudo", "-u", "bob", "bash", "-c", "echo @"], 5),
            (&["timeout", "5", "nice", "-n", "10", "python3", "-c", "f('@')"], 7),
            (&["find", ".", "-exec", "sh", "-c", "mv {} @", ";"], 5),
            (&["docker", "exec", "-i", "box", "sh", "-c", "echo @"], 6),
            (&["ssh", "-p", "22", "host", "rm", "@"], 5),
            (&["su", "bob", "-c", "echo @"], 3),
            (&["su", "--command=echo @"], 1),
            (&["psql", "-d", "db", "-c", "delete from t where day = '@'"], 4),
            (&["sqlite3", "db", "select '@'"], 2),
            (&["awk", "-F", ",", "$1 == \"@\"", "file"], 3),
            (&["sed", "-n", "s/a/@/p", "file"], 2),
            (&["jq", "--arg", "a", "1", ".[\"@\"]"], 4),
            (&["watch", "-n", "1", "ls @"], 3),
            (&["pwsh", "-NoProfile", "-Command", "Write @"], 3),
            (&["runner-of-ours", "-c", "print('@')"], 2),
            (&["psql", "-Ubob", "-cdelete from t where day = '@'"], 2),
            (&["mysql", "-e@"], 1),
            (&["flock", "/lock", "-c", "load @"], 3),
            (&["flock", "-w", "5", "/lock", "sh", "-c", "load @"], 6),
            (&["env", "A=1", "sh", "-c", "load @"], 4),
            (&["docker", "exec", "-e", "A=1", "mysql", "mysql", "-e", "delete from t where a = @"], 7),
            (&["kubectl", "exec", "deploy/mysql", "--", "sh", "-c", "load @"], 6),
            (&["su", "bob", "-g", "staff", "-c", "load @"], 5),
        ] {
            assert_eq!(found(command), [text], "{command:?}");
        }
        for command in [
            &["bash"][..],
            &["bash", "-s"],
            &["python3", "-"],
            &["env", "A=1", "python3"],
            &["psql", "-d", "x"],
        ] {
            assert_eq!(found(command), [99], "{command:?}");
        }
    }

    /// C2. A value may stand in arguments, also in those behind a program text, and in options of other programs.
    #[test]
    fn a_reference_in_an_argument_is_let_through() {
        for command in [
            &["load", "--day=@"][..],
            &["sh", "-c", "load \"$1\"", "load", "@"],
            &["bash", "load.sh", "-c", "@"],
            &["bash", "--rcfile", "@", "load.sh"],
            &["python3", "load.py", "-c", "@"],
            &["python3", "-m", "load", "-c", "@"],
            &["python3", "-c", "import sys; print(sys.argv[1])", "@"],
            &["perl", "-e", "print shift", "@"],
            &["node", "load.js", "-e", "@"],
            &["awk", "-v", "day=@", "{print day}", "@"],
            &["sed", "-e", "s/a/b/", "@"],
            &["jq", "--arg", "day", "@", ".[$day]", "@"],
            &["nginx", "-c", "@"],
            &["ping", "-c", "@", "host"],
            &["grep", "-e", "^@$", "file"],
            &["sudo", "-u", "@", "load"],
            &["mysql", "-u@", "-hserver-@", "db"],
            &["psql", "-U@", "-f", "load.sql", "-v", "day=@"],
            &["psql", "--file=load.sql", "-vday=@"],
            &["env", "A=@", "curl", "-sS", "@"],
            &["flock", "/lock", "load", "-c", "@"],
            &["pwsh", "-NoProfile", "-File", "load.ps1", "-Day", "@"],
            &["docker", "exec", "mysql", "load", "-e", "@"],
            &["kubectl", "exec", "deploy/mysql", "--", "load", "-e", "@"],
            &["docker", "run", "-e", "GREETING=hello @", "image"],
            &["git", "-c", "user.name=Bob of @", "commit"],
            &["spark-submit", "-c", "spark.app.name=load @", "load.py"],
            &["grep", "-e", "day @", "file"],
            &["tar", "-c", "day @"],
        ] {
            let plain: Vec<_> = found(command).into_iter().filter(|at| *at != 99).collect();
            assert!(plain.is_empty(), "{command:?}: {plain:?}");
        }
    }
}
