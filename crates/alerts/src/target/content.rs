//! What a message shows, independent of the service, and how much of it.
//!
//! All texts are plain: bounded and without control characters, but not escaped.

use crate::message::{Item, Message};
use crate::texts::{self, Sentence, Words};

use crate::clean;

/// Most characters of a log and of an error message if the message has several alerts.
const LOG_CHARS_OF_MANY: usize = 600;
const ERROR_CHARS_OF_MANY: usize = 300;

/// What a message shows.
pub(super) struct Content {
    pub(super) title: Sentence,
    /// Notice that the message is a test.
    pub(super) notice: Option<&'static str>,
    /// Labels and values: namespace and rule.
    pub(super) facts: Vec<(&'static str, String)>,
    /// Description of the rule; one or more lines.
    pub(super) description: Option<String>,
    pub(super) entries: Vec<Entry>,
    /// Number of alerts that are not shown, in words.
    pub(super) left_out: Option<String>,
    /// Links of the whole message.
    pub(super) links: Vec<Link>,
    pub(super) words: &'static Words,
}

/// Shown alert.
pub(super) struct Entry {
    /// Description of the alert with its symbol; `None` if the title says it.
    pub(super) heading: Option<Sentence>,
    /// Times of the alert, in one line.
    pub(super) times: String,
    /// Error message; one or more lines.
    pub(super) error: Option<String>,
    /// Last lines of the log.
    pub(super) log: Option<String>,
    pub(super) links: Vec<Link>,
}

/// Link to a page.
pub(super) struct Link {
    pub(super) text: &'static str,
    /// URL without characters that could be markup; see [`clean::url`].
    pub(super) url: String,
}

/// How much of a message is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    items: usize,
    log_chars: usize,
    error_chars: usize,
    description_chars: usize,
    links: bool,
}

impl Extent {
    /// The most that any service shows.
    pub(super) const FULL: Self =
        Self { items: 20, log_chars: 2_000, error_chars: 1_000, description_chars: 1_000, links: true };

    /// Returns the next smaller extent: first fewer alerts, then shorter texts, last no links. `None` if only the title,
    /// the facts and the times of one alert are left.
    fn smaller(self) -> Option<Self> {
        let half = |chars: usize| if chars >= 100 { chars / 2 } else { 0 };
        match self {
            Self { items: 2.., .. } => Some(Self { items: self.items - 1, ..self }),
            Self { log_chars: 1.., .. } => Some(Self { log_chars: half(self.log_chars), ..self }),
            Self { error_chars: 1.., .. } => Some(Self { error_chars: half(self.error_chars), ..self }),
            Self { description_chars: 1.., .. } => {
                Some(Self { description_chars: half(self.description_chars), ..self })
            }
            Self { links: true, .. } => Some(Self { links: false, ..self }),
            _ => None,
        }
    }
}

/// Renders as much of a message as fits. The smallest extent is below the limits of every service.
pub(super) fn fit<T>(message: &Message, render: impl Fn(&Content) -> T, fits: impl Fn(&T) -> bool) -> T {
    let mut extent = Extent { items: message.items.len().min(Extent::FULL.items), ..Extent::FULL };
    loop {
        let rendered = render(&Content::new(message, extent));
        if fits(&rendered) {
            return rendered;
        }
        match extent.smaller() {
            Some(smaller) => extent = smaller,
            None => return rendered,
        }
    }
}

fn facts(message: &Message, words: &Words) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        (words.namespace, texts::short_name(&message.namespace)),
        (words.rule, texts::short_name(&message.rule)),
    ];
    let escalated = message.escalated_after;
    facts.extend(escalated.map(|after| (words.escalated, texts::unacknowledged(after, message.language))));
    facts
}

impl Content {
    /// Returns what a message shows in an extent.
    pub(super) fn new(message: &Message, extent: Extent) -> Self {
        let words = texts::words(message.language);
        let shown = &message.items[..message.items.len().min(extent.items)];
        let left_out = message.total.max(message.items.len() as u64) - shown.len() as u64;
        Self {
            title: texts::title(message),
            notice: message.is_test.then_some(words.test_notice),
            facts: facts(message, words),
            description: message
                .description
                .as_deref()
                .and_then(|text| shortened(text, extent.description_chars)),
            entries: shown.iter().map(|item| Entry::new(message, item, extent)).collect(),
            left_out: (left_out > 0).then(|| texts::left_out(left_out, message.language)),
            links: if extent.links { links(message, words, left_out > 0) } else { Vec::new() },
            words,
        }
    }

    /// Returns a fact as text, for example `Namespace: default`.
    pub(super) fn fact(
        &self,
        (label, value): &(&'static str, String),
        show: impl Fn(&str) -> String,
    ) -> String {
        format!("{label}{}{}", self.words.colon, show(value))
    }
}

impl Entry {
    fn new(message: &Message, item: &Item, extent: Extent) -> Self {
        let many = message.items.len() > 1;
        let limit = |chars: usize, of_many: usize| if many { chars.min(of_many) } else { chars };
        let log_chars = limit(extent.log_chars, LOG_CHARS_OF_MANY);
        Self {
            heading: (many || message.total > 1).then(|| heading(message, item)),
            times: times(message, item),
            error: item
                .detail
                .as_deref()
                .and_then(|text| shortened(text, limit(extent.error_chars, ERROR_CHARS_OF_MANY))),
            log: item
                .log
                .as_deref()
                .map(|text| clean::cut_start(&clean::block(text), log_chars))
                .filter(|text| !text.trim().is_empty()),
            links: if extent.links && !message.is_test { item_links(message, item) } else { Vec::new() },
        }
    }
}

/// Returns a text of several lines within a limit; `None` if it is empty.
fn shortened(text: &str, chars_max: usize) -> Option<String> {
    let text = clean::cut(&clean::block(text), chars_max);
    (!text.trim().is_empty()).then_some(text)
}

fn heading(message: &Message, item: &Item) -> Sentence {
    let mut sentence =
        texts::sentence(&message.condition, item.kind, &item.subject, item.count, message.language);
    sentence.before.insert_str(0, &texts::item_prefix(message.severity, item.resolved, message.language));
    sentence
}

fn times(message: &Message, item: &Item) -> String {
    let words = texts::words(message.language);
    let mut times = if item.opened_at == item.last_at {
        vec![(words.time, item.opened_at)]
    } else {
        vec![(words.first, item.opened_at), (words.last, item.last_at)]
    };
    times.extend(item.resolved_at.map(|at| (words.resolved_at, at)));
    let shown: Vec<_> =
        times.into_iter().map(|(label, at)| format!("{label}{}{}", words.colon, texts::time(at))).collect();
    shown.join(" · ")
}

fn links(message: &Message, words: &Words, all_alerts: bool) -> Vec<Link> {
    let runbook = message.runbook.as_deref().and_then(clean::url);
    let alerts = all_alerts.then(|| page(message, "alerts")).flatten();
    let link = |text, url: Option<String>| url.map(|url| Link { text, url });
    [link(words.runbook, runbook), link(words.all_alerts, alerts)].into_iter().flatten().collect()
}

fn item_links(message: &Message, item: &Item) -> Vec<Link> {
    let words = texts::words(message.language);
    let job = item.job.map(|job| (words.view_job, format!("jobs/{job}")));
    let run = item.run.map(|run| (words.view_run, format!("runs/{run}")));
    let alert = Some((words.view_alert, format!("alerts/{}", item.alert)));
    let link = |(text, path): (_, String)| page(message, &path).map(|url| Link { text, url });
    [job, run, alert].into_iter().flatten().filter_map(link).collect()
}

/// Returns the URL of a page of the dashboard.
pub(super) fn page(message: &Message, path: &str) -> Option<String> {
    clean::url(&format!("{}/{path}", message.dashboard.as_deref()?))
}

/// Returns the URL of the page of an alert.
pub(super) fn alert_page(message: &Message, item: &Item) -> Option<String> {
    page(message, &format!("alerts/{}", item.alert))
}
