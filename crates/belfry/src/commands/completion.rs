//! `belfry completion`: completion scripts of the shells.
//!
//! The scripts are generated from the definition of the command line. The values of `--context` are completed by
//! `belfry context list`, which needs no server.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;

/// Shell command that lists the names of all contexts.
const CONTEXTS: &str = "belfry context list -q -o name 2>/dev/null";

/// Returns the completion script for a shell.
pub(super) fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "belfry", &mut script);
    let script = String::from_utf8_lossy(&script);
    let mut after_context = false;
    script.lines().map(|line| with_contexts(shell, line, &mut after_context) + "\n").collect()
}

/// Completes the value of `--context` in a line of a script. `after_context` tells whether the last line was the case of
/// this option in a bash script.
fn with_contexts(shell: Shell, line: &str, after_context: &mut bool) -> String {
    let is_value = std::mem::replace(after_context, line.trim() == "--context)");
    match shell {
        Shell::Bash if is_value => {
            line.replace(r#"compgen -f "${cur}""#, &format!(r#"compgen -W "$({CONTEXTS})" -- "${{cur}}""#))
        }
        Shell::Zsh if line.contains("--context=[") => {
            line.replace(":NAME:_default'", &format!(":NAME:{{compadd -- $({CONTEXTS})}}'"))
        }
        Shell::Fish if line.contains(" -l context ") => format!("{line} -f -a '({CONTEXTS})'"),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_are_generated_for_every_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            assert!(script.contains("submit") && script.contains("queue"), "{shell}");
        }
    }

    /// Each command has the option, and each value of it is completed.
    #[test]
    fn the_names_of_contexts_are_completed_in_every_shell() {
        for (shell, option) in
            [(Shell::Bash, "--context)"), (Shell::Zsh, "--context=["), (Shell::Fish, " -l context ")]
        {
            let script = script(shell);
            let (options, values) = (script.matches(option).count(), script.matches(CONTEXTS).count());
            assert!(options > 10, "{shell}: {options}");
            assert_eq!(values, options, "{shell}");
        }
    }
}
