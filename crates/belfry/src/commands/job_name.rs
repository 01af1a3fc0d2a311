//! Default name of a job: the program or script that its command runs.
//!
//! `belfry submit -- ./scripts/nightly.sh --all` names the job `nightly.sh`. Programs that run another program
//! ([`WRAPPERS`]), shells with `-c` and interpreters ([`INTERPRETERS`]) are read through, as far as that is certain:
//! `env A=b nice ./load`, `sh -c 'cd /srv && ./load'` and `python load.py` give `load`, `load` and `load.py`. Where it is
//! not certain, for example for a loop of a shell, the name is that of the shell.
//!
//! # Invariants
//! A returned name is valid for a job. It is `None` if the command has no usable name; the server then uses its default.

use std::path::Path;

use model::limits::NAME_LEN_MAX;
use model::spec::{ProcessRun, Run};

/// A program that runs the program in its arguments.
struct Wrapper {
    name: &'static str,
    /// Short and long options whose value is the next word.
    valued: &'static [&'static str],
    /// Number of words between the options and the program.
    operands: usize,
}

const fn wrapper(name: &'static str, valued: &'static [&'static str], operands: usize) -> Wrapper {
    Wrapper { name, valued, operands }
}

const WRAPPERS: &[Wrapper] = &[
    wrapper("env", &["-u", "--unset", "-C", "--chdir"], 0),
    wrapper("exec", &["-a"], 0),
    wrapper("flock", &["-w", "--timeout", "-E", "--conflict-exit-code"], 1),
    wrapper("ionice", &["-c", "--class", "-n", "--classdata"], 0),
    wrapper("nice", &["-n", "--adjustment"], 0),
    wrapper("nohup", &[], 0),
    wrapper("numactl", &["-C", "-m", "-N", "-i", "-p"], 0),
    wrapper("setsid", &[], 0),
    wrapper("stdbuf", &["-i", "-o", "-e"], 0),
    wrapper("sudo", &["-u", "--user", "-g", "--group", "-D", "--chdir"], 0),
    wrapper("taskset", &[], 1),
    wrapper("time", &["-f", "--format", "-o", "--output"], 0),
    wrapper("timeout", &["-k", "--kill-after", "-s", "--signal"], 1),
    wrapper("tini", &[], 0),
];

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "ash", "fish"];

/// A program that runs the script in its arguments.
struct Interpreter {
    /// Name without a version: `python` is also `python3` and `python3.12`.
    name: &'static str,
    /// Options whose value is the next word.
    valued: &'static [&'static str],
    /// Options whose value is the program: `-m http.server`, `-jar app.jar`.
    program: &'static [&'static str],
    /// Options whose value is code, which has no name.
    code: &'static [&'static str],
}

const fn interpreter(
    name: &'static str,
    valued: &'static [&'static str],
    program: &'static [&'static str],
    code: &'static [&'static str],
) -> Interpreter {
    Interpreter { name, valued, program, code }
}

const INTERPRETERS: &[Interpreter] = &[
    interpreter("python", &["-W", "-X"], &["-m"], &["-c"]),
    interpreter("pypy", &["-W", "-X"], &["-m"], &["-c"]),
    interpreter(
        "node",
        &["-r", "--require", "--import", "--loader"],
        &[],
        &["-e", "--eval", "-p", "--print"],
    ),
    interpreter("ruby", &["-I", "-r", "-C"], &[], &["-e"]),
    interpreter("perl", &["-I"], &[], &["-e", "-E"]),
    interpreter("php", &["-c", "-d", "-z"], &["-f"], &["-r"]),
    interpreter("java", &["-cp", "-classpath", "--class-path", "-p", "--module-path"], &["-jar"], &[]),
    interpreter("lua", &["-l"], &[], &["-e"]),
    interpreter("Rscript", &[], &[], &["-e"]),
    interpreter("pwsh", &[], &["-File", "-f"], &["-Command", "-c"]),
];

/// Commands that prepare a script of a shell, but are not its purpose.
const PREPARATIONS: &[&str] =
    &["cd", "set", "export", "source", ".", ":", "umask", "ulimit", "trap", "mkdir", "unset", "shopt"];

/// Keywords of a shell that start a compound command.
const KEYWORDS: &[&str] =
    &["for", "while", "until", "if", "case", "select", "function", "{", "(", "((", "[[", "!"];

/// Returns the name for what a job runs. `script` is the file that the script was read from, if any.
pub(super) fn of_run(run: &Run, script: Option<&Path>) -> Option<String> {
    match run {
        Run::Process(process) => of_process(process, script),
        Run::Container(container) => match script {
            Some(script) => valid(script.to_str()?),
            None => valid(container.image.split(['@']).next()?.rsplit('/').next()?.split(':').next()?),
        },
        Run::Http(http) => {
            let host = http.url.split_once("://")?.1.split(['/', '?', '#']).next()?;
            valid(host.split(':').next()?)
        }
        _ => None,
    }
}

/// Returns the name for a process. `script` is the file that the script was read from, if any.
fn of_process(process: &ProcessRun, script: Option<&Path>) -> Option<String> {
    if process.script.is_some() {
        return valid(script?.to_str()?);
    }
    let words: Vec<_> = process.command.iter().map(String::as_str).collect();
    valid(program(&words)?)
}

/// Returns the word that names the program of a command.
fn program<'a>(words: &[&'a str]) -> Option<&'a str> {
    let words = after_assignments(words);
    let (first, rest) = words.split_first()?;
    let base = base_name(first);
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == base) {
        let rest = after_options(rest, wrapper.valued);
        let inner = rest.get(wrapper.operands..).and_then(program);
        return inner.or(Some(first));
    }
    if SHELLS.contains(&base) {
        return Some(of_shell(rest).unwrap_or(first));
    }
    let unversioned = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    match INTERPRETERS.iter().find(|interpreter| interpreter.name == unversioned) {
        Some(interpreter) => Some(of_interpreter(rest, interpreter).unwrap_or(first)),
        None => Some(first),
    }
}

fn after_assignments<'a, 'b>(words: &'b [&'a str]) -> &'b [&'a str] {
    let is_assignment = |word: &&str| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        })
    };
    let count = words.iter().take_while(|word| is_assignment(word)).count();
    &words[count..]
}

fn after_options<'a, 'b>(mut words: &'b [&'a str], valued: &[&str]) -> &'b [&'a str] {
    while let Some((option, rest)) = words.split_first().filter(|(word, _)| word.starts_with('-')) {
        words = match *option {
            "--" => return rest,
            option if valued.contains(&option) => rest.get(1..).unwrap_or_default(),
            _ => rest,
        };
    }
    words
}

/// Returns the program of `sh -c SCRIPT`, or the file of `sh FILE`.
fn of_shell<'a>(words: &[&'a str]) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "-o" | "+o" | "-O" => drop(words.next()),
            // Also `-ec` and `-lc`: the letters of several options.
            option if option.starts_with('-') && !option.starts_with("--") && option.contains('c') => {
                return of_script(words.next()?);
            }
            option if option.starts_with(['-', '+']) => {}
            file => return Some(file),
        }
    }
    None
}

/// Returns the program of the first command of a shell script that is not a preparation. `None` if the script begins
/// with a compound command, or if the program is not a plain word.
fn of_script(script: &str) -> Option<&str> {
    for command in script.split(['\n', ';', '&', '|']) {
        let words: Vec<_> = command.split_whitespace().collect();
        let words = after_assignments(&words);
        let Some(first) = words.first().filter(|word| !word.starts_with('#')) else { continue };
        if PREPARATIONS.contains(first) {
            continue;
        }
        if KEYWORDS.contains(first) || words.iter().any(|word| word.starts_with("<<")) {
            return None;
        }
        let found = program(words)?;
        let is_plain = |c: char| c.is_alphanumeric() || "-_./+@:".contains(c);
        return Some(found).filter(|word| word.chars().all(is_plain));
    }
    None
}

fn of_interpreter<'a>(words: &[&'a str], interpreter: &Interpreter) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            option if interpreter.program.contains(&option) => return words.next().copied(),
            option if interpreter.code.contains(&option) => return None,
            option if interpreter.valued.contains(&option) => drop(words.next()),
            option if option.starts_with('-') => {}
            file => return Some(file),
        }
    }
    None
}

fn base_name(word: &str) -> &str {
    word.trim_end_matches('/').rsplit('/').next().unwrap_or(word)
}

/// Returns the last part of a path as a name: at most [`NAME_LEN_MAX`] letters, digits, `-`, `_` and `.`, starting
/// with a letter or a digit. `None` if the part before the extension has none of them.
fn valid(path: &str) -> Option<String> {
    let base = base_name(path);
    let stem = base.rsplit_once('.').map_or(base, |(stem, _)| if stem.is_empty() { base } else { stem });
    if !stem.contains(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let mut name = String::new();
    for c in base.chars() {
        let c = if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
        let is_wrong_start = name.is_empty() && !c.is_ascii_alphanumeric();
        let is_repeated = c == '-' && name.ends_with('-');
        if !is_wrong_start && !is_repeated {
            name.push(c);
        }
    }
    name.truncate(NAME_LEN_MAX);
    name.truncate(name.trim_end_matches('-').len());
    debug_assert!(model::validate::name(&name).is_ok(), "{name}");
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(words: &[&str]) -> Option<String> {
        let command = words.iter().map(|word| (*word).to_owned()).collect();
        of_process(&ProcessRun { command, ..ProcessRun::default() }, None)
    }

    #[test]
    fn a_job_has_the_name_of_its_program() {
        for (words, expected) in [
            (&["./scripts/nightly.sh", "x"][..], "nightly.sh"),
            (&["/usr/bin/rsync", "-a", "x", "y"], "rsync"),
            (&["echo"], "echo"),
            (&["docker", "run", "image"], "docker"),
            (&["./my report (2).sh"], "my-report-2-.sh"),
            (&["./报表-daily.py"], "daily.py"),
            (&[".hidden"], "hidden"),
        ] {
            assert_eq!(name(words).as_deref(), Some(expected), "{words:?}");
        }
        assert_eq!(name(&[&format!("./{}", "x".repeat(300))]).map(|name| name.len()), Some(NAME_LEN_MAX));
    }

    #[test]
    fn a_program_without_a_usable_name_gives_none() {
        for words in [&[][..], &["./报表.sh"], &["/"], &[".."], &[""]] {
            assert_eq!(name(words), None, "{words:?}");
        }
    }

    #[test]
    fn programs_that_run_another_program_are_read_through() {
        for (words, expected) in [
            (&["env", "-u", "HOME", "A=b", "C=d", "./load"][..], "load"),
            (&["A=b", "./load"], "load"),
            (&["nice", "-n", "5", "ionice", "-c3", "./load", "-n"], "load"),
            (&["timeout", "-k", "5s", "10m", "./load"], "load"),
            (&["sudo", "-u", "ann", "--", "./load"], "load"),
            (&["flock", "-n", "/tmp/lock", "./load"], "load"),
            (&["env"], "env"),
            (&["nohup", "python3", "load.py"], "load.py"),
        ] {
            assert_eq!(name(words).as_deref(), Some(expected), "{words:?}");
        }
    }

    #[test]
    fn interpreters_give_the_name_of_their_script() {
        for (words, expected) in [
            (&["python", "script.py", "--all"][..], "script.py"),
            (&["/usr/bin/python3.12", "-u", "-W", "error", "jobs/load.py"], "load.py"),
            (&["python3", "-m", "http.server"], "http.server"),
            (&["python3", "-c", "print(1)"], "python3"),
            (&["java", "-Xmx1g", "-cp", "lib", "-jar", "/opt/app.jar"], "app.jar"),
            (&["java", "-cp", "lib", "com.example.Main"], "com.example.Main"),
            (&["node", "-e", "1"], "node"),
            (&["bash", "-eu", "scripts/nightly.sh"], "nightly.sh"),
            (&["bash", "-o", "pipefail", "nightly.sh"], "nightly.sh"),
            (&["bash"], "bash"),
        ] {
            assert_eq!(name(words).as_deref(), Some(expected), "{words:?}");
        }
    }

    #[test]
    fn a_script_of_a_shell_gives_its_first_program() {
        for (script, expected) in [
            ("./import --all > log", "import"),
            ("cd /srv && exec ./import", "import"),
            ("set -eu; export A=b\n# load everything\nA=b python load.py | gzip", "load.py"),
            ("sleep 3; echo done", "sleep"),
            ("for i in 1 2; do echo $i; done", "sh"),
            ("$PROGRAM --all", "sh"),
            ("'my program'", "sh"),
            ("cat <<END\nx; y\nEND", "sh"),
            ("cd /srv", "sh"),
            ("", "sh"),
        ] {
            assert_eq!(name(&["sh", "-c", script]).as_deref(), Some(expected), "{script}");
        }
        assert_eq!(name(&["bash", "-lc", "./import"]).as_deref(), Some("import"));
    }

    #[test]
    fn a_script_has_the_name_of_its_file() {
        let process = ProcessRun { script: Some("true".into()), ..ProcessRun::default() };
        let named = |path: &str| of_process(&process, Some(Path::new(path)));
        assert_eq!(named("jobs/clean.sh").as_deref(), Some("clean.sh"));
        assert_eq!(named("-"), None);
        assert_eq!(of_process(&process, None), None);
    }
}
