//! `belfry calendar`: manages calendars, lists their days and imports iCalendar files.

use jiff::civil::Date;

use super::{Context, apply};
use crate::args::schedule::CalendarCommand;
use crate::args::spec::read_text;
use crate::failure::Failure;
use crate::output::{Format, document, json, yaml};

pub(super) async fn run(context: &Context, command: CalendarCommand) -> Result<(), Failure> {
    if let CalendarCommand::Apply(args) = command {
        return apply::run_kind(context, args, "calendar").await;
    }
    let (client, namespace) = context.connect()?;
    match command {
        CalendarCommand::Apply(_) => Ok(()),
        CalendarCommand::List => {
            let all = namespace.filter().unwrap_or_else(|| "*".to_owned());
            context.out.list(&client.calendars(Some(&all)).await?, "calendars")
        }
        CalendarCommand::Get { name } => {
            context.out.one(&client.calendar(&name, Some(namespace.one()?)).await?)
        }
        CalendarCommand::Days { name, from, until } => {
            let from = from.unwrap_or_else(today);
            let until = until.unwrap_or_else(|| from.saturating_add(jiff::Span::new().years(1)));
            let days = client.calendar_days(&name, Some(namespace.one()?), from, until).await?;
            if let Some(known) = days.known_until.filter(|known| *known < until) {
                context.out.warn(format!(
                    "the calendar has data until {known}: later holidays are not published yet"
                ));
            }
            context.out.data(match context.out.look.format {
                Format::Json => json(&days)?,
                Format::Yaml => yaml(&days)?,
                _ => days.days.iter().map(|day| format!("{day}\n")).collect(),
            })
        }
        CalendarCommand::Import { file, name } => {
            let text = read_text(&file)?;
            let imported = client.import_calendar(&text, name.as_deref(), Some(namespace.one()?)).await?;
            for ignored in &imported.ignored {
                context.out.warn(format!("line {}: not imported: {}", ignored.line, ignored.reason));
            }
            if let Some(until) = imported.spec.known_until {
                context.out.warn(format!(
                    "the calendar has the days of recurring events only until {until}: import the file again before that \
                     day"
                ));
            }
            if imported.saved {
                context.out.note(format!("saved calendar {}", imported.spec.name));
            }
            context.out.data(document(&context.out.look, "calendar", &imported.spec)?)
        }
        CalendarCommand::Delete { name } => {
            client.delete_calendar(&name, Some(namespace.one()?)).await?;
            context.out.note(format!("deleted calendar {name}"));
            Ok(())
        }
    }
}

fn today() -> Date {
    jiff::Zoned::now().date()
}
