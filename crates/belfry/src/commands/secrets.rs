//! `belfry secret`: manages secrets of jobs. Values come from files, standard input, variables or the terminal.

use std::collections::BTreeMap;
use std::path::Path;

use client::Client;
use model::alert::{HIDDEN, SecretText};
use model::api::Secret;
use model::secret::SecretSpec;

use super::{Context, apply, for_each_item, login};
use crate::args::secret::{PutArgs, SecretCommand, Source, ValueSource};
use crate::args::spec::read_text;
use crate::failure::Failure;
use crate::output::text::escape;

pub(super) async fn run(context: &Context, command: SecretCommand) -> Result<(), Failure> {
    let command = match command {
        SecretCommand::Apply(args) => return apply::run_kind(context, args, "secret").await,
        other => other,
    };
    let (client, namespace) = context.connect()?;
    match command {
        SecretCommand::Apply(_) => Ok(()),
        SecretCommand::Put(args) => put(context, &client, namespace.one()?, args).await,
        SecretCommand::List => {
            context.out.list(&client.secrets(namespace.filter().as_deref()).await?, "secrets")
        }
        SecretCommand::Get { name } => context.out.one(&client.secret(namespace.one()?, &name).await?),
        SecretCommand::Delete { names } => {
            let namespace = namespace.one()?;
            let (_, result) = for_each_item(context.out, names, async |name: String| {
                client.delete_secret(namespace, &name).await?;
                context.out.note(format!("deleted secret {}", escape(&name)));
                Ok(())
            })
            .await;
            result
        }
    }
}

async fn put(context: &Context, client: &Client, namespace: &str, args: PutArgs) -> Result<(), Failure> {
    let PutArgs { name, values: sources, from_env_file, description, replace } = args;
    let from_stdin = sources.iter().filter(|value| value.source == Source::StandardInput).count()
        + usize::from(from_env_file.as_deref() == Some(Path::new("-")));
    if from_stdin > 1 {
        return Err(Failure::usage("standard input can be the source of one value only"));
    }
    let before = existing(client, namespace, &name).await?;
    let kept = before.iter().filter(|_| !replace).flat_map(|before| before.spec.values.keys().cloned());
    let mut values: BTreeMap<_, _> = kept.map(|key| (key, SecretText::new(HIDDEN))).collect();
    if let Some(path) = &from_env_file {
        values.extend(from_lines(&read_text(path)?)?);
    }
    for ValueSource { key, source } in sources {
        let value = read(&key, source).await?;
        values.insert(key, SecretText::new(value));
    }
    let description =
        description.or_else(|| before.as_ref().and_then(|before| before.spec.description.clone()));
    let spec = SecretSpec { name, namespace: namespace.to_owned(), description, values };
    let after = client.put_secret(&spec).await?;
    let what = match &before {
        None => "created",
        Some(before) if before.version == after.version => "unchanged",
        Some(_) => "changed",
    };
    context.out.note(format!("secret {} {what}: version {}", escape(&spec.name), after.version));
    Ok(())
}

async fn existing(client: &Client, namespace: &str, name: &str) -> Result<Option<Secret>, Failure> {
    Ok(apply::optional(client.secret(namespace, name).await)?)
}

async fn read(key: &str, source: Source) -> Result<String, Failure> {
    Ok(match source {
        Source::Terminal => login::ask_secret(&format!("Value of {}: ", escape(key))).await?.0,
        Source::File(path) => apply::trimmed(read_text(&path)?),
        Source::StandardInput => apply::trimmed(read_text(Path::new("-"))?),
        Source::Variable(name) => std::env::var(&name).map_err(|_| {
            Failure::usage(format!("the environment variable `{}` is not set", escape(&name)))
        })?,
    })
}

/// Reads lines `KEY=VALUE`. Empty lines and lines that begin with `#` are ignored. Quotes belong to a value.
fn from_lines(text: &str) -> Result<BTreeMap<String, SecretText>, Failure> {
    let mut values = BTreeMap::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').ok_or_else(|| {
            // Without the line, which may be a value.
            Failure::usage(format!("line {} of the file has no `=`: expected `KEY=VALUE`", i + 1))
        })?;
        values.insert(key.trim().to_owned(), SecretText::new(value));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_single_line_does_not_belong_to_a_value() {
        for (text, expected) in
            [("a\n", "a"), ("a\r\n", "a"), ("a", "a"), (" a \n", " a "), ("a\nb\n", "a\nb\n")]
        {
            assert_eq!(apply::trimmed(text.to_owned()), expected, "{text:?}");
        }
    }

    #[test]
    fn an_env_file_has_a_value_in_each_line() {
        let values = from_lines("# smtp\n\nUSER=me\nPASSWORD=a=b \"c\"\n").unwrap();
        let values: Vec<_> = values.iter().map(|(key, value)| (key.as_str(), value.expose())).collect();
        assert_eq!(values, [("PASSWORD", "a=b \"c\""), ("USER", "me")]);
        let wrong = from_lines("A=1\nhunter2\n").unwrap_err().render(false);
        assert!(wrong.contains("line 2") && !wrong.contains("hunter2"), "{wrong}");
    }
}
