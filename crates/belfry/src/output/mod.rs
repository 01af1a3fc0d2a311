//! What a command says: data on standard output, all else on standard error.
//!
//! Every object has a table row, and most a detailed view, for people; JSON and YAML are the objects
//! of the API as they are, for programs. A command builds text here and writes it in one place, so a
//! reader that goes away ends it quietly.
//!
//! - [`table`]: rows and details; the objects implement [`table::Row`] and [`table::Detail`] in
//!   [`objects`], [`machines`], [`schedules`], [`workflows`] and [`runs`].
//! - [`added`]: what a task added to a step.
//! - [`forecast`]: what is to come, in tables.
//! - [`why`] and [`step_why`]: reasons in words.
//! - [`time`] and [`text`]: how instants and foreign text are shown.
//! - [`progress`]: what is shown while waiting.

pub(crate) mod added;
pub(crate) mod forecast;
pub(crate) mod live;
pub(crate) mod machines;
pub(crate) mod objects;
pub(crate) mod progress;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod step_why;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod why;
pub(crate) mod workflows;

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use model::Timestamp;
use serde::Serialize;

use self::table::{Detail, Row};
use crate::failure::Failure;

/// How data is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// More columns, and exact times.
    Wide,
    /// The objects of the API; a stream has one on each line.
    Json,
    /// The same as YAML.
    Yaml,
    /// Ids or names alone, one on each line.
    Name,
}

/// How things look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// How data is shown.
    pub(crate) format: Format,
    /// Whether standard output may be coloured.
    pub(crate) color: bool,
    /// From when relative times count.
    pub(crate) now: Timestamp,
}

impl Look {
    /// Whether more columns and exact times are wanted.
    pub(crate) fn wide(&self) -> bool {
        self.format == Format::Wide
    }
}

/// Where a command writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    /// How things look.
    pub(crate) look: Look,
    /// Whether notes to people are left out.
    pub(crate) quiet: bool,
    /// Whether standard error may be coloured.
    pub(crate) color_err: bool,
}

impl Out {
    /// For this process: colours only on terminals, and not where `NO_COLOR` is set.
    pub(crate) fn new(format: Format, no_color: bool, quiet: bool) -> Self {
        let colors = !no_color
            && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            && std::env::var_os("TERM").is_none_or(|v| v != "dumb");
        let look = Look {
            format,
            color: colors && std::io::stdout().is_terminal(),
            now: jiff::Timestamp::now().into(),
        };
        Self { look, quiet, color_err: colors && std::io::stderr().is_terminal() }
    }

    /// Writes data.
    pub(crate) fn data(&self, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes.as_ref())?;
        Ok(stdout.flush()?)
    }

    /// Writes what a task wrote to its standard error, or a line of the log that is Belfry's own.
    pub(crate) fn error_data(&self, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
        Ok(std::io::stderr().lock().write_all(bytes.as_ref())?)
    }

    /// Tells people something that is no data.
    pub(crate) fn note(&self, line: impl AsRef<str>) {
        if !self.quiet {
            // Nothing can be done if nobody hears it.
            let _ = writeln!(std::io::stderr().lock(), "{}", line.as_ref());
        }
    }

    /// Tells people what they should know even if they want quiet.
    pub(crate) fn warn(&self, line: impl AsRef<str>) {
        let (yellow, reset) = if self.color_err { ("\x1b[33m", "\x1b[0m") } else { ("", "") };
        let _ = writeln!(std::io::stderr().lock(), "{yellow}warning:{reset} {}", line.as_ref());
    }

    /// Tells people what they can do about a warning.
    pub(crate) fn help(&self, line: impl AsRef<str>) {
        if !self.quiet {
            let (cyan, reset) = if self.color_err { ("\x1b[36m", "\x1b[0m") } else { ("", "") };
            let _ = writeln!(std::io::stderr().lock(), "{cyan}help:{reset} {}", line.as_ref());
        }
    }

    /// How things look now: what an answer tells may be younger than this process.
    fn now(&self) -> Look {
        Look { now: jiff::Timestamp::now().into(), ..self.look }
    }

    /// Shows one object: its details, or itself.
    pub(crate) fn one<T: Detail>(&self, item: &T) -> Result<(), Failure> {
        self.data(one(&self.now(), item)?)
    }

    /// Shows a list; `what` names its items where there are none.
    pub(crate) fn list<T: Row>(&self, items: &[T], what: &str) -> Result<(), Failure> {
        if items.is_empty() && matches!(self.look.format, Format::Table | Format::Wide) {
            self.note(format!("no {what}"));
            return Ok(());
        }
        self.data(list(&self.now(), items)?)
    }

    /// Shows one object as a row for people, and as itself for programs.
    pub(crate) fn row<T: Row>(&self, item: &T) -> Result<(), Failure> {
        self.data(row(&self.now(), item)?)
    }

    /// Shows why a job stands where it stands.
    pub(crate) fn why(&self, told: &model::why::Why) -> Result<(), Failure> {
        self.data(why::why(&self.now(), told)?)
    }

    /// Shows what a task added.
    pub(crate) fn added(&self, told: &added::Added) -> Result<(), Failure> {
        self.data(added::added(&self.look, told)?)
    }

    /// Shows what is to come.
    pub(crate) fn forecast(&self, told: &forecast::Told, zone: &jiff::tz::TimeZone) -> Result<(), Failure> {
        self.data(forecast::forecast(&self.look, told, zone)?)
    }

    /// Shows one item of a stream; `first` brings the heads of the columns along.
    pub(crate) fn item<T: Row>(&self, item: &T, first: bool) -> Result<(), Failure> {
        self.data(stream_item(&self.now(), item, first)?)
    }
}

/// One object as text.
pub(crate) fn one<T: Detail>(look: &Look, item: &T) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Table | Format::Wide => table::detail(look, item),
        Format::Json => json(item)?,
        Format::Yaml => yaml(item)?,
        Format::Name => item.name() + "\n",
    })
}

/// A list as text.
pub(crate) fn list<T: Row>(look: &Look, items: &[T]) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Table | Format::Wide => table::rows(look, items),
        Format::Json => json(&items)?,
        Format::Yaml => yaml(&items)?,
        Format::Name => items.iter().map(|item| item.name() + "\n").collect(),
    })
}

fn row<T: Row>(look: &Look, item: &T) -> Result<String, Failure> {
    match look.format {
        Format::Json => json(item),
        Format::Yaml => yaml(item),
        _ => list(look, std::slice::from_ref(item)),
    }
}

fn stream_item<T: Row>(look: &Look, item: &T, first: bool) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Table | Format::Wide => table::line(look, item, first),
        Format::Json => serde_json::to_string(item).map_err(anyhow::Error::from)? + "\n",
        Format::Yaml => format!("---\n{}", yaml(item)?),
        Format::Name => item.name() + "\n",
    })
}

/// JSON for programs that people look at too.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(value).map_err(anyhow::Error::from)? + "\n")
}

/// A value as JSON, or as YAML where that is wanted.
pub(crate) fn value(look: &Look, value: &impl Serialize) -> Result<String, Failure> {
    if look.format == Format::Yaml { yaml(value) } else { json(value) }
}

/// A spec as a document that `belfry apply` takes: what names it stands above, the rest below `spec`.
pub(crate) fn document(look: &Look, kind: &str, spec: &impl Serialize) -> Result<String, Failure> {
    const ABOVE: [&str; 4] = ["name", "namespace", "owner", "labels"];
    if look.format == Format::Json {
        let spec = serde_json::to_value(spec).map_err(anyhow::Error::from)?;
        let mut document = serde_json::json!({"version": 1, "kind": kind, "spec": {}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            let above = ABOVE.contains(&key.as_str());
            let at = if above { &mut document } else { &mut document["spec"] };
            at[key] = value.clone();
        }
        return json(&document);
    }
    let (mut head, mut body) = (format!("version: 1\nkind: {kind}\n"), "spec:\n".to_owned());
    let mut above = false;
    for line in yaml(spec)?.lines() {
        // Only a key of the spec itself begins at the margin; a list below it begins with its dash there.
        if !line.starts_with([' ', '-']) && !line.is_empty() {
            above = line.split_once(':').is_some_and(|(key, _)| ABOVE.contains(&key));
        }
        match above {
            true => head.extend([line, "\n"]),
            false => body.extend(["  ", line, "\n"]),
        }
    }
    Ok(head + &body)
}

/// YAML that reads back as the same.
pub(crate) fn yaml(value: &impl Serialize) -> Result<String, Failure> {
    let mut text = serde_saphyr::to_string(value).map_err(anyhow::Error::from)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use model::{JobSpec, ScheduleSpec};

    use super::*;

    fn look(format: Format) -> Look {
        Look { format, color: false, now: Timestamp::default() }
    }

    /// A document says the same as its spec, in either format, whatever stands in it.
    #[test]
    fn a_spec_becomes_a_document_that_reads_back_as_the_same() {
        let mut job = JobSpec::command(["sh", "-c", "echo 'name: x'\n\nname: y\n- spec: z"]);
        job.labels.insert("spec".into(), "no".into());
        let mut spec = ScheduleSpec::new("nightly", model::timing::Timing::default(), job);
        spec.labels.insert("team".into(), "pay".into());
        spec.owner = Some("ann".into());
        spec.description = Some("name: first\nowner: second".into());
        let wanted = serde_json::to_value(&spec).unwrap();
        for format in [Format::Table, Format::Yaml, Format::Json] {
            let text = document(&look(format), "schedule", &spec).unwrap();
            let mut read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            let above = read.as_object_mut().unwrap();
            let mut found = above.remove("spec").unwrap();
            assert_eq!(
                (above.remove("version"), above.remove("kind")),
                (Some(1.into()), Some("schedule".into()))
            );
            found.as_object_mut().unwrap().append(above);
            assert_eq!(found, wanted, "{text}");
        }
    }
}
