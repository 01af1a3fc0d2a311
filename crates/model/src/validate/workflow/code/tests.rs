//! Words of a command that count as program code.
//!
//! Each test is a table of commands. `@` stands for a reference such as `${{ params.day }}`, and `found`
//! returns the indexes of the words in which a reference is refused; 99 is the standard input. A new
//! interpreter, wrapper or option gets a row here.
//!
//! The tests come in pairs: code must be refused, and a similar argument that is data must be accepted.
//! Unknown programs are tested with names such as `runner-of-ours`. If the check cannot decide, it refuses a
//! text that looks like code.

use super::*;

const VALUE: &str = "${{ params.day }}";

/// Returns the indexes of the words that are program code with a reference; `@` stands for a reference.
fn found(command: &[&str]) -> Vec<usize> {
    let command: Vec<String> = command.iter().map(|word| word.replace('@', VALUE)).collect();
    let stdin = Some(VALUE.to_owned());
    let texts = references_in_programs(&command, stdin.as_deref());
    texts.into_iter().map(|text| if let Text::Word(at) = text { at } else { 99 }).collect()
}

/// C2. A reference in program code is rejected for every interpreter and wrapper.
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
    for command in
        [&["bash"][..], &["bash", "-s"], &["python3", "-"], &["env", "A=1", "python3"], &["psql", "-d", "x"]]
    {
        assert_eq!(found(command), [99], "{command:?}");
    }
}

/// C2. A reference is allowed in arguments, also after program code, and in options of other programs.
#[test]
fn a_reference_in_an_argument_is_accepted() {
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

/// C2. The value of an option is not mistaken for the program file, so code options after it are found.
#[test]
fn program_text_behind_an_option_with_a_value_is_refused() {
    for (command, text) in [
        (&["osascript", "-l", "JavaScript", "-e", "f('@')"][..], 4),
        (&["racket", "-l", "racket/base", "-e", "@"], 4),
        (&["groovy", "-cp", "lib", "-e", "@"], 4),
        (&["scala", "-cp", "x", "-e", "@"], 4),
        (&["bb", "-cp", "src", "-e", "@"], 4),
        (&["erl", "-pa", "ebin", "-eval", "@"], 4),
        (&["node", "--input-type", "module", "-e", "@"], 4),
        (&["julia", "--startup-file", "no", "-e", "@"], 4),
        (&["guile", "-L", "d", "-c", "@"], 4),
        (&["elixir", "-r", "f", "-e", "@"], 4),
        (&["fish", "-d", "3", "-c", "@"], 4),
        (&["php", "--define", "a=b", "-r", "@"], 4),
        (&["R", "--encoding", "utf8", "-e", "@"], 4),
        (&["node", "--option-of-tomorrow", "x", "-e", "f('@')"], 4),
        (&["elixir", "--option-of-tomorrow", "x", "--eval=f('@')"], 3),
    ] {
        assert_eq!(found(command), [text], "{command:?}");
    }
}

/// C2. A short option with an attached value neither hides a code option nor is one.
#[test]
fn letters_with_a_value_in_the_same_word_do_not_hide_program_text() {
    for (command, text) in [
        (&["ruby", "-W", "-e", "@"][..], 3),
        (&["ruby", "-Ke", "-T", "-e", "@"], 4),
        (&["perl", "-MStorable", "-e", "@"], 3),
        (&["perl", "-Mlocale", "-e", "@"], 3),
        (&["perl", "-mlocale", "-i.orige", "-pe", "s/a/@/"], 4),
        (&["perl", "-CSne", "s/a/@/"], 2),
        (&["scala", "-nocache", "-e", "f(@)"], 3),
        (&["sed", "-i.save", "s/a/@/"], 2),
    ] {
        assert_eq!(found(command), [text], "{command:?}");
    }
}

/// C2. An interpreter can have several code options, and options between the code option and the code.
#[test]
fn every_program_text_of_an_interpreter_is_refused() {
    for (command, texts) in [
        (&["deno", "eval", "--ext=ts", "@"][..], &[3][..]),
        (&["deno", "eval", "--ext", "ts", "@"], &[4]),
        (&["nu", "--commands", "@"], &[2]),
        (&["nu", "--config", "x.nu", "-c", "@"], &[4]),
        (&["sh", "-c", "-", "echo @"], &[3]),
        (&["sh", "-c", "--", "echo @"], &[3]),
        (&["perl", "-e", "print 1;", "-e", "print '@'"], &[4]),
        (&["osascript", "-e", "on run", "-e", "@"], &[4]),
        (&["ssh", "host", "ls", "-l", "@", "--day=@"], &[4, 5]),
        (&["pwsh", "-ExecutionPolicy", "Bypass", "-Command", "Write", "-Day", "@"], &[6]),
        (&["python3", "-m", "timeit", "@"], &[3]),
        (&["python3", "-m", "timeit", "-n", "5", "-s", "f(@)", "g()"], &[6]),
        (&["php-cli", "-r", "@"], &[2]),
        (&["xonsh", "-c", "@"], &[2]),
        (&["sqlcmd", "-S", "server", "-Q", "@"], &[4]),
        (&["ansible", "all", "-a", "@"], &[3]),
        (&["tmux", "new", "-d", "@"], &[3]),
        (&["tmux", "new-session", "-d", "-s", "load", "echo @"], &[5]),
        (&["crystal", "eval", "@"], &[2]),
    ] {
        assert_eq!(found(command), texts, "{command:?}");
    }
}

/// C2. Text that looks like code is rejected after every code-like option of an unknown program.
#[test]
fn text_that_looks_like_a_program_is_refused_for_unknown_programs() {
    for (command, text) in [
        (&["octave", "--eval=disp('@')"][..], 1),
        (&["octave", "--eval", "disp('@')"], 2),
        (&["gcloud", "compute", "ssh", "h", "--command=rm @"], 4),
        (&["env", "runner-of-ours", "-c", "print('@')"], 3),
        (&["timeout", "5", "runner-of-ours", "--exec=print('@')"], 3),
        (&["git", "-c", "alias.x=!@", "x"], 2),
        (&["docker", "run", "nginx", "runner-of-ours", "-c", "print('@')"], 5),
    ] {
        assert_eq!(found(command), [text], "{command:?}");
    }
}

/// C2. An unknown program may start a program named by its arguments.
#[test]
fn program_text_behind_an_unknown_wrapper_is_refused() {
    for (command, text) in [
        (&["gosu", "u", "awk", "$1==\"@\""][..], 3),
        (&["wrapper-of-ours", "u", "awk", "$1==\"@\""], 3),
        (&["srun", "sed", "s/a/@/"], 2),
        (&["wrapper-of-ours", "--quiet", "sed", "s/a/@/"], 3),
        (&["poetry", "run", "sqlite3", "db", "select @"], 4),
        (&["wrapper-of-ours", "ssh", "host", "rm '@'"], 3),
        (&["wrapper-of-ours", "psql", "-c", "delete from t where day = '@'"], 3),
        (&["env", "-i", "wrapper-of-ours", "jq", ".[\"@\"]"], 4),
        (&["xargs", "--option-of-tomorrow", "x", "mysql", "-e", "@"], 5),
    ] {
        assert_eq!(found(command), [text], "{command:?}");
    }
}

/// C2. A shell or a client without code and program file reads code from the standard input.
#[test]
fn standard_input_that_is_a_program_is_refused() {
    for command in [
        &["ssh", "host"][..],
        &["ssh", "-p", "22", "host"],
        &["su", "bob"],
        &["su", "-", "bob"],
        &["runuser", "-l", "bob"],
        &["parallel"],
        &["parallel", "-j", "4"],
        &["at", "now"],
        &["batch"],
        &["clickhouse-client"],
        &["clickhouse-client", "--host", "db"],
        &["sqlcmd", "-S", "server"],
        &["bash", "-s", "argument"],
        &["bash", "-es", "argument"],
        &["bash", "/dev/stdin", "argument"],
        &["sh", "-"],
        &["awk", "-f", "-", "file"],
        &["psql", "-f", "-"],
        &["python3", "-", "argument"],
    ] {
        assert_eq!(found(command), [99], "{command:?}");
    }
}

/// C2. The standard input is data if the code is given elsewhere.
#[test]
fn standard_input_that_is_data_is_accepted() {
    for command in [
        &["load"][..],
        &["ssh", "host", "load"],
        &["su", "bob", "-c", "load"],
        &["su", "-", "bob", "-c", "load"],
        &["runuser", "-u", "bob", "load"],
        &["parallel", "load", "{}"],
        &["at", "-f", "load.sh", "now"],
        &["clickhouse-client", "--query", "INSERT INTO t FORMAT CSV"],
        &["python3", "load.py"],
        &["python3", "-u", "load.py"],
        &["python3", "-m", "load"],
        &["sh", "load.sh"],
        &["sh", "-", "load.sh"],
        &["sh", "-c", "load"],
        &["node", "--option-of-tomorrow", "load.js"],
        &["jq", ".x"],
        &["awk", "{print $1}"],
        &["load", "--into", "mysql"],
        &["docker", "exec", "-i", "mysql", "load"],
        &["watch", "load"],
        &["deno", "run", "load.ts"],
        &["curl", "-d", "-", "url"],
    ] {
        assert!(found(command).is_empty(), "{command:?}");
    }
}

/// C2. A reference is allowed in the arguments of code, of a script file and of ordinary commands.
#[test]
fn ordinary_commands_with_values_are_accepted() {
    for command in [
        &["./run", "@"][..],
        &["./run", "--name", "day of @", "--name=day of @"],
        &["env", "DAY=@", "./run", "@"],
        &["timeout", "5", "./run", "@"],
        &["timeout", "-k", "5", "@", "./run", "day of @"],
        &["sudo", "-u", "bob", "./run", "@"],
        &["nice", "-n", "10", "grep", "-e", "day @", "file"],
        &["env", "A=1", "grep", "-e", "day @", "file"],
        &["xargs", "-n", "1", "grep", "-e", "day @"],
        &["python3", "script.py", "@"],
        &["python3", "-u", "script.py", "-c", "day of @"],
        &["python3", "-m", "load", "-c", "day of @"],
        &["python3", "-m", "cProfile", "-o", "@", "script.py", "@"],
        &["python3", "script.py", "awk", "@"],
        &["python3", "-c", "import sys", "-c", "day of @"],
        &["sh", "script.sh", "@"],
        &["sh", "script.sh", "-c", "day of @"],
        &["sh", "-", "script.sh", "@"],
        &["sh", "-c", "echo \"$1\"", "-", "@"],
        &["sh", "-c", "echo \"$1\"", "sh", "-e", "day of @"],
        &["node", "-e", "f(process.argv)", "--", "-e", "day of @"],
        &["node", "--option-of-tomorrow", "script.js", "-e", "@"],
        &["node", "--max-old-space-size=4096", "script.js", "-e", "day of @"],
        &["node", "--env-file", ".env", "script.js", "day of @"],
        &["perl", "-MStorable", "-e", "print shift", "@"],
        &["perl", "-w", "script.pl", "-e", "day of @"],
        &["ruby", "-W", "script.rb", "-e", "day of @"],
        &["php", "script.php", "-r", "@"],
        &["osascript", "-l", "JavaScript", "script.js", "@"],
        &["deno", "run", "--allow-read", "script.ts", "@"],
        &["groovy", "-cp", "lib", "script.groovy", "@"],
        &["java", "-cp", "lib", "Main", "@"],
        &["Rscript", "--vanilla", "script.R", "@"],
        &["pwsh", "-ExecutionPolicy", "Bypass", "-File", "load.ps1", "-Day", "@"],
        &["grep", "-e", "@", "file"],
        &["sed", "-e", "s/a/b/", "@"],
        &["sed", "--file", "script.sed", "@"],
        &["awk", "-f", "script.awk", "@"],
        &["jq", "--from-file", "script.jq", "--arg", "day", "day of @", "@"],
        &["sqlite3", "-separator", ",", "@", ".tables"],
        &["curl", "-d", "@", "url"],
        &["curl", "-d", "{\"day\": \"@\"}", "-e", "day of @", "url"],
        &["docker", "run", "image", "@"],
        &["docker", "run", "--rm", "-v", "/data:/data", "-e", "DAY=@", "image:1.2", "load", "--day", "@"],
        &["kubectl", "delete", "pod", "@"],
        &["git", "clone", "--branch", "@", "url"],
        &["git", "commit", "-m", "day of @ (again)"],
        &["npm", "run", "watch", "@"],
        &["make", "script", "DAY=@"],
        &["apt-get", "install", "jq", "tool=@"],
        &["gcloud", "compute", "ssh", "@", "--zone", "@"],
        &["gcloud", "compute", "ssh", "host", "--zone", "@"],
        &["rsync", "-e", "ssh", "@", "host:"],
        &["aws", "s3", "cp", "@", "s3://bucket/@"],
        &["psql", "-v", "day=@", "-f", "load.sql"],
        &["mysql", "-h", "@", "-e", "select 1"],
        &["ssh", "-i", "@", "user@host", "load"],
        &["ansible-playbook", "-e", "day=@", "site.yaml"],
        &["ansible", "all", "-i", "@", "-m", "ping"],
        &["flock", "-n", "/lock", "./run", "@"],
        &["python3", "-m", "timeit", "-n", "@", "f()"],
        &["tmux", "kill-session", "-t", "@"],
    ] {
        let plain: Vec<_> = found(command).into_iter().filter(|at| *at != 99).collect();
        assert!(plain.is_empty(), "{command:?}: {plain:?}");
    }
}

/// C2. No command makes the check slow: the check stops at the 33rd word that names a program.
#[test]
fn references_behind_too_many_programs_are_refused() {
    let mut command = vec!["docker"];
    command.extend(["mysql"; 33]);
    command.push("@");
    assert_eq!(found(&command), [34, 99]);
    command.truncate(33);
    command.push("@");
    assert_eq!(found(&command), [99]);
}
