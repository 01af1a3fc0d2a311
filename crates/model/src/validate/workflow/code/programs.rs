//! Table of programs that read program code, or start another program, with their command-line syntax.
//!
//! The parent module uses the table to find program code in a command, where references are not allowed. An entry has
//! the options with program code, the options with other values, and the meaning of the arguments. A program that is
//! not in the table is unknown; the parent module then rejects only text that looks like code.
//!
//! To add a program, add an entry to [`PROGRAMS`] and a case to the tests of the parent module.

/// Command-line syntax of a program.
pub(super) struct Program {
    /// Names of the program, without directory and version.
    pub names: &'static [&'static str],
    /// Letters of short options whose value is program code.
    pub text: &'static str,
    /// Long options whose value is program code; `--eval=TEXT` too.
    pub text_words: &'static [&'static str],
    /// Letters of short options with another value, in the same word or in the next one.
    pub takes: &'static str,
    /// Long options with other values, and the number of these values.
    pub takes_words: &'static [(&'static str, usize)],
    /// Letters of short options whose optional value is in the same word: `-MModule`.
    pub attached: &'static str,
    /// Letters of short options that name a program file or a module. The arguments then belong to that program.
    pub file: &'static str,
    /// Long options that name a program file or a module.
    pub file_words: &'static [&'static str],
    /// Letters of short options that make the standard input the program, whatever arguments follow.
    pub stdin: &'static str,
    pub arguments: Arguments,
    /// Whether the program reads code from the standard input if the command line has none.
    pub reads_stdin: bool,
    /// Whether `-` ends the options, like `--`. Otherwise `-` means the standard input.
    pub dash_ends_options: bool,
    /// Whether further options can be between the option and its code, also in the same word: `sh -cx -e TEXT`.
    pub options_before_text: bool,
    /// Whether all words after the code are its arguments. Otherwise options can follow: `perl -e TEXT -e TEXT`.
    pub text_is_last: bool,
    /// Whether the table contains all options with a value. Otherwise the word after an unknown option can be its
    /// value.
    pub all_known: bool,
}

/// Meaning of the arguments that are not options.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Arguments {
    /// The first argument is the program file, the others are arguments of that program.
    File,
    /// The first argument is program code, the others are files.
    Text,
    /// All words from the argument with this index, from 0, are program code.
    TextFrom(usize),
    /// No argument is program code or a program.
    Plain,
    /// The argument with this index, from 0, names a program; the following words are its arguments.
    CommandFrom(usize),
}

/// Defaults for the table.
const USUAL: Program = Program {
    names: &[],
    text: "",
    text_words: &[],
    takes: "",
    takes_words: &[],
    attached: "",
    file: "",
    file_words: &[],
    stdin: "",
    arguments: Arguments::File,
    reads_stdin: false,
    dash_ends_options: false,
    options_before_text: false,
    text_is_last: false,
    all_known: false,
};

/// Programs that read program code, or that start the program named by an argument.
pub(super) const PROGRAMS: &[Program] = &[
    // Shells.
    Program {
        names: &["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "csh", "tcsh", "yash"],
        text: "c",
        takes: "oO",
        takes_words: &[("--rcfile", 1), ("--init-file", 1)],
        stdin: "s",
        reads_stdin: true,
        dash_ends_options: true,
        options_before_text: true,
        text_is_last: true,
        all_known: true,
        ..USUAL
    },
    Program {
        names: &["fish"],
        text: "cC",
        text_words: &["--command", "--init-command"],
        takes: "dDfop",
        takes_words: &[("--debug", 1), ("--debug-output", 1), ("--features", 1), ("--profile", 1)],
        reads_stdin: true,
        all_known: true,
        ..USUAL
    },
    Program {
        names: &["nu", "xonsh"],
        text: "ce",
        text_words: &["--command", "--commands", "--execute"],
        takes: "ImtD",
        takes_words: &[("--config", 1), ("--env-config", 1), ("--log-level", 1), ("--include-path", 1)],
        reads_stdin: true,
        ..USUAL
    },
    Program {
        names: &["pwsh", "powershell", "cmd"],
        takes_words: &[
            ("-executionpolicy", 1),
            ("-ep", 1),
            ("-windowstyle", 1),
            ("-workingdirectory", 1),
            ("-wd", 1),
            ("-outputformat", 1),
            ("-inputformat", 1),
            ("-configurationname", 1),
            ("-settingsfile", 1),
            ("-version", 1),
        ],
        file_words: &["-file", "-f"],
        // Also after `-Command`, `-EncodedCommand`, `/c` and `/k`, which take all following words.
        arguments: Arguments::TextFrom(0),
        ..USUAL
    },
    // Interpreters.
    Program {
        names: &["python", "pypy", "micropython"],
        text: "c",
        takes: "WXQ",
        takes_words: &[("--check-hash-based-pycs", 1), ("--jit", 1)],
        file: "m",
        reads_stdin: true,
        text_is_last: true,
        all_known: true,
        ..USUAL
    },
    Program {
        names: &["ipython", "IPython"],
        text: "c",
        takes_words: &[("--profile", 1), ("--matplotlib", 1)],
        file: "m",
        reads_stdin: true,
        text_is_last: true,
        ..USUAL
    },
    // A Python module.
    Program { names: &["timeit"], text: "s", takes: "nru", arguments: Arguments::TextFrom(0), ..USUAL },
    Program {
        names: &["perl", "raku"],
        text: "eE",
        takes: "I",
        attached: "MmixDF",
        reads_stdin: true,
        all_known: true,
        ..USUAL
    },
    Program {
        names: &["ruby", "jruby", "mruby"],
        text: "e",
        takes: "rICE",
        takes_words: &[
            ("--encoding", 1),
            ("--external-encoding", 1),
            ("--internal-encoding", 1),
            ("--enable", 1),
            ("--disable", 1),
        ],
        attached: "KFxi",
        reads_stdin: true,
        all_known: true,
        ..USUAL
    },
    Program {
        names: &["node", "nodejs", "bun", "ts-node", "tsx"],
        text: "ep",
        text_words: &["--eval", "--print"],
        takes: "rC",
        takes_words: &[
            ("--require", 1),
            ("--import", 1),
            ("--loader", 1),
            ("--experimental-loader", 1),
            ("--conditions", 1),
            ("--input-type", 1),
            ("--env-file", 1),
            ("--title", 1),
        ],
        reads_stdin: true,
        options_before_text: true,
        ..USUAL
    },
    Program {
        names: &["deno", "crystal"],
        text_words: &["eval"],
        takes_words: &[("--ext", 1), ("--config", 1), ("--import-map", 1), ("--cert", 1), ("--seed", 1)],
        takes: "c",
        options_before_text: true,
        text_is_last: true,
        ..USUAL
    },
    Program {
        names: &["php", "php-cli", "php-cgi"],
        text: "rBRE",
        text_words: &["--run", "--process-begin", "--process-code", "--process-end"],
        takes: "dctzS",
        takes_words: &[
            ("--define", 1),
            ("--php-ini", 1),
            ("--docroot", 1),
            ("--server", 1),
            ("--zend-extension", 1),
        ],
        file: "fF",
        file_words: &["--file", "--process-file"],
        reads_stdin: true,
        all_known: true,
        ..USUAL
    },
    Program {
        names: &["lua", "luajit", "texlua"],
        text: "e",
        takes: "l",
        attached: "jOb",
        reads_stdin: true,
        all_known: true,
        ..USUAL
    },
    Program {
        names: &["Rscript", "R", "littler"],
        text: "e",
        takes: "fgd",
        takes_words: &[("--encoding", 1), ("--gui", 1), ("--debugger", 1), ("--file", 1)],
        reads_stdin: true,
        ..USUAL
    },
    Program {
        names: &["julia"],
        text: "eE",
        text_words: &["--eval", "--print"],
        takes: "LpJtHCmO",
        takes_words: &[
            ("--startup-file", 1),
            ("--project", 1),
            ("--load", 1),
            ("--procs", 1),
            ("--sysimage", 1),
            ("--threads", 1),
            ("--color", 1),
            ("--compile", 1),
            ("--handle-signals", 1),
            ("--history-file", 1),
            ("--depwarn", 1),
        ],
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
        takes: "rltSs",
        takes_words: &[
            ("-cp", 1),
            ("-classpath", 1),
            ("--class-path", 1),
            ("--classpath", 1),
            ("-pa", 1),
            ("-pz", 1),
            ("-pr", 1),
            ("-Sdeps", 1),
            ("--name", 1),
            ("--sname", 1),
            ("--cookie", 1),
            ("--require", 1),
        ],
        ..USUAL
    },
    Program { names: &["erl"], text_words: &["-eval"], arguments: Arguments::Plain, ..USUAL },
    Program {
        names: &["guile", "expect", "tclsh", "gosh", "chibi-scheme"],
        text: "c",
        takes: "Lxl",
        reads_stdin: true,
        ..USUAL
    },
    // Database clients.
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
        takes: "hud",
        file_words: &["--queries-file"],
        arguments: Arguments::Plain,
        reads_stdin: true,
        ..USUAL
    },
    Program {
        names: &["sqlcmd"],
        text: "qQ",
        text_words: &["--query", "--initial-query"],
        takes: "SUPdohswlmtHKaAv",
        file: "i",
        file_words: &["--input-file"],
        arguments: Arguments::Plain,
        reads_stdin: true,
        ..USUAL
    },
    Program { names: &["mongo", "mongosh"], text_words: &["--eval"], arguments: Arguments::Plain, ..USUAL },
    Program {
        names: &["sqlite", "duckdb"],
        text_words: &["-c", "-s", "-cmd", "--cmd"],
        takes_words: &[("-separator", 1), ("-newline", 1), ("-nullvalue", 1), ("-init", 1), ("-vfs", 1)],
        arguments: Arguments::TextFrom(1),
        reads_stdin: true,
        ..USUAL
    },
    // Text processing languages.
    Program {
        names: &["awk", "gawk", "mawk", "nawk", "original-awk"],
        text: "e",
        text_words: &["--source"],
        takes: "Fvil",
        takes_words: &[("--assign", 1), ("--field-separator", 1), ("--include", 1), ("--load", 1)],
        file: "fE",
        file_words: &["--file", "--exec"],
        arguments: Arguments::Text,
        ..USUAL
    },
    Program {
        names: &["sed", "gsed"],
        text: "e",
        text_words: &["--expression"],
        takes: "l",
        takes_words: &[("--line-length", 1)],
        attached: "i",
        file: "f",
        file_words: &["--file"],
        arguments: Arguments::Text,
        ..USUAL
    },
    Program {
        names: &["jq", "gojq", "jaq", "yq"],
        takes: "L",
        takes_words: &[("--arg", 2), ("--argjson", 2), ("--slurpfile", 2), ("--rawfile", 2), ("--indent", 1)],
        file: "f",
        file_words: &["--from-file"],
        arguments: Arguments::Text,
        ..USUAL
    },
    // Programs that pass text to a shell.
    Program {
        names: &["ssh"],
        takes: "BbcDEeFIiJLlmOopQRSWw",
        arguments: Arguments::TextFrom(1),
        reads_stdin: true,
        ..USUAL
    },
    Program {
        names: &["su", "sg", "script"],
        text: "c",
        text_words: &["--command", "--session-command"],
        takes: "gGswT",
        arguments: Arguments::Plain,
        reads_stdin: true,
        ..USUAL
    },
    Program {
        names: &["runuser"],
        text: "c",
        text_words: &["--command", "--session-command"],
        takes: "gGswT",
        // With this option the arguments are a command, and no shell reads the standard input.
        file: "u",
        file_words: &["--user"],
        arguments: Arguments::Plain,
        reads_stdin: true,
        ..USUAL
    },
    Program {
        names: &["at", "batch"],
        takes: "qt",
        file: "f",
        arguments: Arguments::Plain,
        reads_stdin: true,
        ..USUAL
    },
    Program { names: &["watch"], takes: "nq", arguments: Arguments::TextFrom(0), ..USUAL },
    Program {
        names: &["parallel"],
        takes: "aCdEIjLNnPSs",
        arguments: Arguments::TextFrom(0),
        reads_stdin: true,
        ..USUAL
    },
    // The argument before the code is the command of tmux: `tmux new-session -d TEXT`.
    Program { names: &["tmux"], takes: "cefFnstxyLS", arguments: Arguments::TextFrom(1), ..USUAL },
    Program {
        names: &["ansible"],
        text: "a",
        text_words: &["--args"],
        takes: "imeufTBPclMt",
        arguments: Arguments::Plain,
        ..USUAL
    },
    Program {
        names: &["nix-shell"],
        text_words: &["--run", "--command"],
        arguments: Arguments::Plain,
        ..USUAL
    },
    // Programs that start the program named by an argument.
    Program {
        names: &["env"],
        text: "S",
        text_words: &["--split-string"],
        takes: "uC",
        takes_words: &[("--unset", 1), ("--chdir", 1)],
        arguments: Arguments::CommandFrom(0),
        all_known: true,
        ..USUAL
    },
    Program {
        names: &["flock"],
        text: "c",
        text_words: &["--command"],
        takes: "wE",
        takes_words: &[("--timeout", 1), ("--wait", 1), ("--conflict-exit-code", 1)],
        arguments: Arguments::CommandFrom(1),
        all_known: true,
        ..USUAL
    },
    Program {
        names: &["timeout"],
        takes: "ks",
        takes_words: &[("--kill-after", 1), ("--signal", 1)],
        arguments: Arguments::CommandFrom(1),
        all_known: true,
        ..USUAL
    },
    Program {
        names: &["nice"],
        takes: "n",
        takes_words: &[("--adjustment", 1)],
        arguments: Arguments::CommandFrom(0),
        all_known: true,
        ..USUAL
    },
    Program {
        names: &["sudo"],
        takes: "ugphrtTCDRU",
        takes_words: &[
            ("--user", 1),
            ("--group", 1),
            ("--prompt", 1),
            ("--host", 1),
            ("--chdir", 1),
            ("--chroot", 1),
        ],
        arguments: Arguments::CommandFrom(0),
        all_known: true,
        ..USUAL
    },
    Program { names: &["xargs"], takes: "aEILnPsd", arguments: Arguments::CommandFrom(0), ..USUAL },
    Program { names: &["nohup", "setsid"], arguments: Arguments::CommandFrom(0), all_known: true, ..USUAL },
    Program {
        names: &["gosu", "su-exec", "setuidgid"],
        arguments: Arguments::CommandFrom(1),
        all_known: true,
        ..USUAL
    },
];

/// Other programs that start a program named by an argument; the table does not have its position.
pub(super) const WRAPPERS: &[&str] = &[
    "doas",
    "ionice",
    "chrt",
    "time",
    "stdbuf",
    "chroot",
    "find",
    "busybox",
    "docker",
    "podman",
    "nerdctl",
    "kubectl",
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
    "numactl",
    "srun",
    "mpirun",
    "mpiexec",
    "strace",
    "tini",
    "dumb-init",
];

/// Options of unknown programs that program code may follow.
pub(super) const USUAL_FLAGS: [&str; 8] =
    ["-c", "-e", "-lc", "-ec", "--eval", "--exec", "--execute", "--command"];

/// Programs without arguments that name a program and without options for program code.
pub(super) const NO_PROGRAM_TEXT: &[&str] = &[
    "grep", "egrep", "fgrep", "rg", "tar", "ping", "nginx", "curl", "echo", "printf", "apt", "apt-get",
    "apk", "dnf", "yum", "brew", "pip",
];

/// Returns the table entry of the program that a word names.
pub(super) fn named(word: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.names.contains(&bare(word)))
}

/// Returns the name of a program without directory and version: `python` for `/usr/bin/python3.11`.
pub(super) fn bare(word: &str) -> &str {
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

/// Meaning of a word after the name of a program.
pub(super) enum Meaning {
    /// The word contains program code.
    Text,
    /// The next word is program code.
    TextNext,
    /// The word names a program file.
    File,
    /// The next word names a program file.
    FileNext,
    /// The word makes the standard input the program.
    Stdin,
    /// The following words, this many, are values of the option.
    Takes(usize),
    /// An option whose optional value is in the same word.
    Option,
    /// An option that is not in the table: the next word may be its value.
    UnknownOption,
    Argument,
}

impl Program {
    pub(super) fn meaning(&self, word: &str) -> Meaning {
        let lower = word.to_ascii_lowercase();
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let is = |flag: &str| flag == name || flag == lower;
        let here_or_next = |here, next| if value.is_some() { here } else { next };
        if self.text_words.iter().any(|flag| is(flag)) {
            return here_or_next(Meaning::Text, Meaning::TextNext);
        }
        if self.file_words.iter().any(|flag| is(flag)) {
            return here_or_next(Meaning::File, Meaning::FileNext);
        }
        if let Some((_, count)) = self.takes_words.iter().find(|(flag, _)| is(flag)) {
            return Meaning::Takes(count - usize::from(value.is_some()));
        }
        match word {
            "-" if self.reads_stdin && self.arguments == Arguments::File && !self.dash_ends_options => {
                Meaning::Stdin
            }
            "-" | "--" => Meaning::Option,
            _ if !word.starts_with(['-', '+']) => Meaning::Argument,
            _ => self.letters(word).unwrap_or(match self.all_known || value.is_some() {
                true => Meaning::Option,
                false => Meaning::UnknownOption,
            }),
        }
    }

    /// Returns the meaning of a word of short options, or `None` if the table has none of them.
    fn letters(&self, word: &str) -> Option<Meaning> {
        if word.starts_with("--") {
            return None;
        }
        // A reference in the word starts the value of the letter before it.
        let letters = word[1..].split('$').next().unwrap_or_default();
        if self.options_before_text && letters.chars().any(|letter| self.text.contains(letter)) {
            return Some(Meaning::TextNext);
        }
        letters.char_indices().find_map(|(place, letter)| {
            let is_last = word[1 + place..].chars().count() == 1;
            let here_or_next = |here, next| Some(if is_last { next } else { here });
            match letter {
                _ if self.text.contains(letter) => here_or_next(Meaning::Text, Meaning::TextNext),
                _ if self.file.contains(letter) => here_or_next(Meaning::File, Meaning::FileNext),
                _ if self.takes.contains(letter) => here_or_next(Meaning::Option, Meaning::Takes(1)),
                _ if self.attached.contains(letter) => Some(Meaning::Option),
                _ if self.stdin.contains(letter) => Some(Meaning::Stdin),
                _ => None,
            }
        })
    }
}
