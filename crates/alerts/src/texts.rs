//! Texts of messages in both languages.
//!
//! The words of a language are a table ([`Words`]); sentences whose order differs between the languages are functions.
//! A sentence keeps the name of its object apart ([`Sentence`]), because each service marks up a name in its own way:
//! the caller escapes the three parts and joins them.
//!
//! # Invariants
//! All parts are one line without control characters and of bounded length, whatever the names contain.

use model::alert::{Language, Severity, SubjectKind};
use model::{Duration, Timestamp};

use crate::clean;
use crate::message::Message;

/// Most characters of the name of an object in a sentence.
const NAME_CHARS_MAX: usize = 200;
/// Most characters of the name of a rule or a namespace. Valid ones are shorter.
const SHORT_NAME_CHARS_MAX: usize = 100;
/// Most characters of the name of a condition in a sentence.
const CONDITION_CHARS_MAX: usize = 40;

/// Sentence about one named object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sentence {
    /// Text before the name.
    pub(crate) before: String,
    /// Name of the object; empty if the sentence has no name.
    pub(crate) name: String,
    /// Text after the name.
    pub(crate) after: String,
}

impl Sentence {
    /// Joins the parts, each with the markup of a service.
    pub(crate) fn render(&self, text: impl Fn(&str) -> String, name: impl Fn(&str) -> String) -> String {
        let name = if self.name.is_empty() { String::new() } else { name(&self.name) };
        format!("{}{name}{}", text(&self.before), text(&self.after))
    }

    /// Joins the parts like [`Sentence::render`] and shortens the name until the result has at most `max` UTF-16 units.
    pub(crate) fn render_within(
        &self,
        max: usize,
        text: impl Fn(&str) -> String,
        name: impl Fn(&str) -> String,
    ) -> String {
        let mut shown = self.clone();
        loop {
            let rendered = shown.render(&text, &name);
            if shown.name.is_empty() || clean::utf16_len(&rendered) <= max {
                return rendered;
            }
            shown.name = clean::cut(&shown.name, clean::utf16_len(&shown.name) - 1);
        }
    }

    /// Returns the sentence as plain text.
    pub(crate) fn to_text(&self) -> String {
        self.render(str::to_owned, str::to_owned)
    }
}

/// Fixed words of a language.
pub(crate) struct Words {
    pub(crate) namespace: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) escalated: &'static str,
    pub(crate) time: &'static str,
    pub(crate) first: &'static str,
    pub(crate) last: &'static str,
    pub(crate) resolved_at: &'static str,
    pub(crate) error: &'static str,
    pub(crate) log: &'static str,
    pub(crate) view_job: &'static str,
    pub(crate) view_run: &'static str,
    pub(crate) view_alert: &'static str,
    pub(crate) all_alerts: &'static str,
    pub(crate) runbook: &'static str,
    pub(crate) test_notice: &'static str,
    /// Between a label and its value.
    pub(crate) colon: &'static str,
    resolved: &'static str,
    test: &'static str,
}

static ENGLISH: Words = Words {
    namespace: "Namespace",
    rule: "Rule",
    escalated: "Escalated",
    time: "Time",
    first: "First",
    last: "Last",
    resolved_at: "Resolved",
    error: "Error",
    log: "Log",
    view_job: "View job",
    view_run: "View run",
    view_alert: "View alert",
    all_alerts: "View all alerts",
    runbook: "Runbook",
    test_notice: "This is a test notification. No action is required.",
    colon: ": ",
    resolved: "Resolved",
    test: "[Test] ",
};

static CHINESE: Words = Words {
    namespace: "命名空间",
    rule: "告警规则",
    escalated: "升级通知",
    time: "发生时间",
    first: "首次发生",
    last: "最近发生",
    resolved_at: "解决时间",
    error: "错误信息",
    log: "日志",
    view_job: "查看任务",
    view_run: "查看运行实例",
    view_alert: "查看告警",
    all_alerts: "查看全部告警",
    runbook: "处理手册",
    test_notice: "这是一条测试通知，无需处理。",
    colon: "：",
    resolved: "已解决",
    test: "【测试】",
};

/// Returns the fixed words of a language.
pub(crate) fn words(language: Language) -> &'static Words {
    match language {
        Language::English => &ENGLISH,
        Language::Chinese => &CHINESE,
    }
}

/// Describes the last occurrence of an alert in one line, for example "Job `payroll` failed (3 times)".
///
/// An empty `subject` stands for all further objects of the rule. An unknown condition is shown by its name.
pub(crate) fn describe(
    condition: &str,
    kind: SubjectKind,
    subject: &str,
    count: u64,
    language: Language,
) -> String {
    let quote = |name: &str| match language {
        Language::English => format!("`{name}`"),
        Language::Chinese => name.to_owned(),
    };
    sentence(condition, kind, subject, count, language).render(str::to_owned, quote)
}

/// Returns [`describe`] with the name of the object apart.
pub(crate) fn sentence(
    condition: &str,
    kind: SubjectKind,
    subject: &str,
    count: u64,
    language: Language,
) -> Sentence {
    let name = clean::line(subject, NAME_CHARS_MAX);
    let (before, predicate) = match (language, name.is_empty()) {
        (Language::English, false) => (format!("{} ", english_noun(kind)), english(condition, false)),
        (Language::English, true) => {
            (format!("Other {}s", english_noun(kind).to_lowercase()), english(condition, true))
        }
        (Language::Chinese, false) => (format!("{} ", chinese_noun(kind)), chinese(condition)),
        (Language::Chinese, true) => (format!("其他{}", chinese_noun(kind)), chinese(condition)),
    };
    let times = if is_counted(condition) { times(count, language) } else { String::new() };
    // Chinese is written without a space between the words, except after a name.
    let space = if language == Language::Chinese && name.is_empty() { "" } else { " " };
    Sentence { before, name, after: format!("{space}{predicate}{times}") }
}

/// Returns whether the occurrences of a condition are events, whose number says something, and not a state that lasts.
fn is_counted(condition: &str) -> bool {
    !matches!(
        condition,
        "no_success"
            | "schedule_paused"
            | "service_degraded"
            | "worker_lost"
            | "queue_delay"
            | "monitor_down"
    )
}

fn times(count: u64, language: Language) -> String {
    match language {
        _ if count <= 1 => String::new(),
        Language::English => format!(" ({count} times)"),
        Language::Chinese => format!("（{count} 次）"),
    }
}

const fn english_noun(kind: SubjectKind) -> &'static str {
    match kind {
        SubjectKind::Job => "Job",
        SubjectKind::Workflow => "Workflow",
        SubjectKind::Schedule => "Schedule",
        SubjectKind::Service => "Service",
        SubjectKind::Worker => "Worker",
        SubjectKind::Queue => "Queue",
        SubjectKind::Monitor => "Monitor",
    }
}

const fn chinese_noun(kind: SubjectKind) -> &'static str {
    match kind {
        SubjectKind::Job => "任务",
        SubjectKind::Workflow => "工作流",
        SubjectKind::Schedule => "定时任务",
        SubjectKind::Service => "服务",
        SubjectKind::Worker => "执行器",
        SubjectKind::Queue => "队列",
        SubjectKind::Monitor => "监控项",
    }
}

fn english(condition: &str, plural: bool) -> String {
    let (one, many) = match condition {
        "job_failed" | "run_failed" => ("failed", "failed"),
        "failure_rate" => ("failed too often", "failed too often"),
        "job_late" => ("has not started in time", "have not started in time"),
        "job_slow" => ("is running too long", "are running too long"),
        "job_overdue" => ("missed its completion deadline", "missed their completion deadlines"),
        "no_success" => ("has not succeeded for too long", "have not succeeded for too long"),
        "firing_skipped" => ("skipped or missed a scheduled time", "skipped or missed scheduled times"),
        "schedule_paused" => ("is paused", "are paused"),
        "service_degraded" => ("has too few available replicas", "have too few available replicas"),
        "rollout_failed" => ("has a failed rollout", "have failed rollouts"),
        "worker_lost" => ("is lost", "are lost"),
        "queue_delay" => ("has jobs that are waiting too long", "have jobs that are waiting too long"),
        "monitor_down" => ("is down", "are down"),
        "test" => ("is an example, not a failure", "are examples, not failures"),
        other => {
            let verb = if plural { "meet" } else { "meets" };
            return format!("{verb} the condition {}", condition_name(other));
        }
    };
    (if plural { many } else { one }).to_owned()
}

fn chinese(condition: &str) -> String {
    let text = match condition {
        "job_failed" => "执行失败",
        "run_failed" => "运行失败",
        "failure_rate" => "失败次数过多",
        "job_late" => "未按时启动",
        "job_slow" => "运行时间过长",
        "job_overdue" => "未在截止时间前完成",
        "no_success" => "长时间没有执行成功",
        "firing_skipped" => "有触发被跳过或错过",
        "schedule_paused" => "已暂停",
        "service_degraded" => "的可用副本不足",
        "rollout_failed" => "发布失败",
        "worker_lost" => "已失联",
        "queue_delay" => "中的任务等待时间过长",
        "monitor_down" => "状态异常",
        "test" => "仅为示例，并非故障",
        other => return format!("满足条件 {}", condition_name(other)),
    };
    text.to_owned()
}

/// Returns the name of a condition that a later version may have; it cannot contain markup.
fn condition_name(name: &str) -> String {
    let is_part = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    name.chars().filter(is_part).take(CONDITION_CHARS_MAX).collect()
}

/// Returns the title of a message: severity or "resolved", then the alert, or the rule and the number of its alerts.
pub(crate) fn title(message: &Message) -> Sentence {
    let words = words(message.language);
    let resolved = message.is_resolved();
    let test = if message.is_test { words.test } else { "" };
    let word = if resolved { words.resolved } else { severity(message.severity, message.language) };
    let prefix = format!("{} {test}{word}{}", symbol(message.severity, resolved), words.colon);
    let mut title = match message.items.as_slice() {
        [item] if message.total <= 1 => {
            sentence(&message.condition, item.kind, &item.subject, item.count, message.language)
        }
        items => several(message, message.total.max(items.len() as u64), resolved),
    };
    title.before.insert_str(0, &prefix);
    title
}

fn several(message: &Message, total: u64, resolved: bool) -> Sentence {
    let (before, after) = match message.language {
        Language::English => (format!("{total} alerts of rule "), String::new()),
        Language::Chinese if resolved => ("告警规则 ".to_owned(), format!(" 的 {total} 条告警")),
        Language::Chinese => ("告警规则 ".to_owned(), format!(" 触发 {total} 条告警")),
    };
    Sentence { before, name: short_name(&message.rule), after }
}

/// Cleans the name of a rule or a namespace.
pub(crate) fn short_name(name: &str) -> String {
    clean::line(name, SHORT_NAME_CHARS_MAX)
}

/// Returns the symbol of a severity, or of a resolved alert.
pub(crate) const fn symbol(severity: Severity, resolved: bool) -> &'static str {
    match severity {
        _ if resolved => "✅",
        Severity::Critical => "🔴",
        Severity::Warning => "🟠",
        Severity::Info => "🔵",
    }
}

const fn severity(severity: Severity, language: Language) -> &'static str {
    match (language, severity) {
        (Language::English, Severity::Critical) => "Critical",
        (Language::English, Severity::Warning) => "Warning",
        (Language::English, Severity::Info) => "Info",
        (Language::Chinese, Severity::Critical) => "严重",
        (Language::Chinese, Severity::Warning) => "警告",
        (Language::Chinese, Severity::Info) => "提示",
    }
}

/// Returns the prefix of a listed alert: its symbol, and the word "resolved" if it is resolved.
pub(crate) fn item_prefix(of: Severity, resolved: bool, language: Language) -> String {
    let words = words(language);
    let word = if resolved { format!("{}{}", words.resolved, words.colon) } else { String::new() };
    format!("{} {word}", symbol(of, resolved))
}

/// Returns how many alerts a message does not list.
pub(crate) fn left_out(count: u64, language: Language) -> String {
    match language {
        Language::English if count == 1 => "and 1 more alert".to_owned(),
        Language::English => format!("and {count} more alerts"),
        Language::Chinese => format!("另有 {count} 条告警未列出"),
    }
}

/// Says for how long no user acknowledged an alert.
pub(crate) fn unacknowledged(after: Duration, language: Language) -> String {
    match language {
        Language::English => format!("not acknowledged within {after}"),
        Language::Chinese => format!("{after} 内无人确认"),
    }
}

/// Formats a time in UTC with the precision of a second, for example `2026-11-28 14:03:00 UTC`.
pub(crate) fn time(at: Timestamp) -> String {
    let text = at.to_string();
    let seconds = text.split(['.', 'Z']).next().unwrap_or(&text);
    format!("{} UTC", seconds.replacen('T', " ", 1))
}

#[cfg(test)]
mod tests {
    use model::alert::AlertCondition;

    use super::*;

    /// Conditions with the kinds of their subjects.
    fn conditions() -> impl Iterator<Item = (&'static str, SubjectKind)> {
        AlertCondition::NAMES.into_iter().map(|name| {
            let kind = match name {
                "run_failed" => SubjectKind::Workflow,
                "firing_skipped" | "schedule_paused" => SubjectKind::Schedule,
                "service_degraded" | "rollout_failed" => SubjectKind::Service,
                "worker_lost" => SubjectKind::Worker,
                "queue_delay" => SubjectKind::Queue,
                "monitor_down" => SubjectKind::Monitor,
                _ => SubjectKind::Job,
            };
            (name, kind)
        })
    }

    fn table(language: Language) -> String {
        let line = |(name, kind)| {
            format!(
                "{}\n{}\n",
                describe(name, kind, "nightly", 3, language),
                describe(name, kind, "", 1, language)
            )
        };
        conditions().map(line).collect()
    }

    #[test]
    fn every_condition_has_a_sentence_in_english() {
        insta::assert_snapshot!(table(Language::English), @r#"
        Job `nightly` failed (3 times)
        Other jobs failed
        Job `nightly` failed too often (3 times)
        Other jobs failed too often
        Job `nightly` has not started in time (3 times)
        Other jobs have not started in time
        Job `nightly` is running too long (3 times)
        Other jobs are running too long
        Job `nightly` missed its completion deadline (3 times)
        Other jobs missed their completion deadlines
        Job `nightly` has not succeeded for too long
        Other jobs have not succeeded for too long
        Workflow `nightly` failed (3 times)
        Other workflows failed
        Schedule `nightly` skipped or missed a scheduled time (3 times)
        Other schedules skipped or missed scheduled times
        Schedule `nightly` is paused
        Other schedules are paused
        Service `nightly` has too few available replicas
        Other services have too few available replicas
        Service `nightly` has a failed rollout (3 times)
        Other services have failed rollouts
        Worker `nightly` is lost
        Other workers are lost
        Queue `nightly` has jobs that are waiting too long
        Other queues have jobs that are waiting too long
        Monitor `nightly` is down
        Other monitors are down
        "#);
    }

    #[test]
    fn every_condition_has_a_sentence_in_chinese() {
        insta::assert_snapshot!(table(Language::Chinese), @r#"
        任务 nightly 执行失败（3 次）
        其他任务执行失败
        任务 nightly 失败次数过多（3 次）
        其他任务失败次数过多
        任务 nightly 未按时启动（3 次）
        其他任务未按时启动
        任务 nightly 运行时间过长（3 次）
        其他任务运行时间过长
        任务 nightly 未在截止时间前完成（3 次）
        其他任务未在截止时间前完成
        任务 nightly 长时间没有执行成功
        其他任务长时间没有执行成功
        工作流 nightly 运行失败（3 次）
        其他工作流运行失败
        定时任务 nightly 有触发被跳过或错过（3 次）
        其他定时任务有触发被跳过或错过
        定时任务 nightly 已暂停
        其他定时任务已暂停
        服务 nightly 的可用副本不足
        其他服务的可用副本不足
        服务 nightly 发布失败（3 次）
        其他服务发布失败
        执行器 nightly 已失联
        其他执行器已失联
        队列 nightly 中的任务等待时间过长
        其他队列中的任务等待时间过长
        监控项 nightly 状态异常
        其他监控项状态异常
        "#);
    }

    #[test]
    fn an_unknown_condition_is_shown_by_its_name() {
        let text = |language| describe("new", SubjectKind::Job, "a", 1, language);
        assert_eq!(text(Language::English), "Job `a` meets the condition new");
        assert_eq!(text(Language::Chinese), "任务 a 满足条件 new");
    }

    #[test]
    fn a_time_has_no_fraction_of_a_second() {
        assert_eq!(time("2026-11-28T14:03:00.123456Z".parse().unwrap()), "2026-11-28 14:03:00 UTC");
        assert_eq!(time(Timestamp::from_micros(0)), "1970-01-01 00:00:00 UTC");
    }

    #[test]
    fn a_title_is_shortened_at_the_name() {
        let title = sentence("job_failed", SubjectKind::Job, &"x".repeat(300), 1, Language::English);
        let short = title.render_within(20, str::to_owned, str::to_owned);
        assert_eq!(short, "Job xxxxxxxx… failed");
    }
}
