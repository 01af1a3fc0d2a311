/**
 * G3. Texts use the terms of the glossary, in plain English and idiomatic Chinese.
 *
 * Each failure names the file, the key, the rule and the replacement.
 */

import { expect, test } from "vitest";

import { EN, problem, prose, ZH } from "./texts";

/** English terms, and what a Chinese text with the term must contain. */
const TERMS: ReadonlyArray<[english: string, chinese: string]> = [
  ["leader", "主节点"],
  ["standbys?", "备节点"],
  ["(?:take|takes|taking) over|takeover", "接管"],
  ["(?:hand|hands|handing) over|handover", "移交"],
  ["epoch", "任期"],
  ["heartbeat", "心跳"],
  ["lease", "租约"],
  ["fence", "防护令牌"],
  ["servers?", "服务端"],
  ["workers?", "执行器"],
  ["eligible", "可用执行器"],
  ["slots?", "槽位"],
  ["reserves?|reserved|reservations?", "预留"],
  ["preempts?|preempted|preempting|preemptible", "抢占"],
  ["capacity", "资源|容量"],
  ["drain|drained|draining", "排空"],
  ["cordon|cordoned", "停止调度"],
  ["uncordon|uncordoned", "恢复调度"],
  ["jobs?", "任务"],
  ["executions?", "执行"],
  ["attempts?", "次执行|执行次数|重试"],
  ["retry|retries|retried", "重试"],
  ["queues?", "队列"],
  ["priority", "优先级"],
  ["priority class", "优先级类别"],
  ["weight", "权重"],
  ["concurrent|concurrency", "并发"],
  ["limits?", "上限|限制|限流"],
  ["unlimited", "不限"],
  ["namespaces?", "命名空间"],
  ["quotas?", "配额"],
  ["custom resources?", "自定义资源"],
  ["owner", "负责人"],
  ["containers?", "容器"],
  ["images?", "镜像"],
  ["registry", "镜像仓库"],
  ["sandbox(?:es)?", "沙箱"],
  ["runtimes?", "运行方式"],
  ["labels?", "标签"],
  ["artifacts?", "制品"],
  ["checkpoints?", "检查点"],
  ["logs?(?! (?:in|out)\\b)", "日志"],
  ["log in|logs in|login", "登录"],
  ["log out|logs out|logout", "退出"],
  ["tokens?", "令牌"],
  ["accounts?", "账号"],
  ["service accounts?", "服务账号"],
  ["roles?", "角色"],
  ["role bindings?", "角色绑定"],
  ["permissions?", "权限"],
  ["administrators?", "管理员"],
  ["revokes?|revoked", "吊销"],
  ["unbinds?|unbound", "解除"],
  ["retention", "保留期"],
  ["expires?|expired", "过期"],
  ["exit code", "退出码"],
  ["working directory", "工作目录"],
  ["environment variables?", "环境变量"],
  ["timeout", "超时"],
  ["default", "默认"],
  ["optional", "可选"],
  ["schedules?", "定时任务"],
  ["fires?|firings?|fired|triggers?|triggered", "触发"],
  ["scheduled times?", "计划时间"],
  ["start time", "开始时间"],
  ["end time", "结束时间"],
  ["delay", "延迟"],
  ["start deadline", "最晚开始"],
  ["missed", "错过"],
  ["catch-up|caught up", "补偿"],
  ["backfills?", "补数"],
  ["ledger", "触发台账"],
  ["calendars?", "日历"],
  ["overlap policy", "重叠策略"],
  ["forecast", "预测"],
  ["workflows?", "工作流"],
  ["runs?", "运行|执行|重跑"],
  ["steps?", "步骤"],
  ["elements?", "元素"],
  ["services?", "服务"],
  ["replicas?", "副本"],
  ["revisions?", "版本"],
  ["rollouts?|rolls? out|rolled out|rolling out", "发布"],
  ["rolls? back|rolled back|rolling back|rollbacks?", "回滚"],
  ["canary|canaries", "金丝雀"],
  ["promotes?|promoted|promotion", "全量发布"],
  ["scales?|scaled", "扩缩容|缩容"],
  ["endpoints?", "端点"],
  ["ports?", "端口"],
  ["health checks?", "健康检查"],
  ["readiness checks?", "就绪检查"],
  ["liveness checks?", "存活检查"],
  ["startup checks?", "启动检查"],
  ["shards?", "分片"],
  ["upstream", "上游"],
  ["downstream", "下游"],
  ["task mapping", "动态映射"],
  ["join rule", "触发规则"],
  ["approval|approver", "审批"],
  ["events?", "事件"],
  ["parameters?", "参数"],
  ["outputs?", "输出"],
  ["inputs?", "输入"],
  ["interpreter", "解释器"],
  ["commits?", "提交"],
  ["waiting|waits?", "等待"],
  ["running", "运行"],
  ["succeeded|succeeds|success", "成功"],
  ["failure groups?", "失败分组|该分组"],
  ["fail|fails|failed|failures?", "失败|失效|未成功|出错"],
  ["lost", "失联"],
  ["refused|refuses", "拒绝"],
  ["cancels?|cancelled", "取消"],
  ["pauses?|paused", "暂停"],
  ["resumes?|resumed", "恢复"],
  ["deletes?|deleted", "删除"],
  ["alerts?", "告警"],
  ["alert rules?", "告警规则"],
  ["channels?", "通知渠道"],
  ["silences?|silenced", "静默"],
  ["monitors?", "监控项"],
  ["pings?|pinged", "上报"],
  ["notifications?|notify|notifies|notified", "通知"],
  ["severity", "严重程度"],
  ["acknowledges?|acknowledged", "确认"],
];

/** Texts that correctly lack the translation of a term. */
const EXCEPTIONS: ReadonlyMap<string, string> = new Map([
  ["jobs.filterPlaceholder: failed", "an example of what to type: statuses are English in a filter"],
  ["jobs.keyHints.status: failed", "an example of what to type"],
  ["jobs.keyHints.status: running", "an example of what to type"],
  ["jobs.keyHints.queue: default", "an example of what to type: the queue `default`"],
  ["jobs.keyHints.namespace: default", "an example of what to type: the namespace `default`"],
  ["notification.columns.attempts: attempts", "attempts of a delivery (投递次数) are no executions"],
  ["notification.next: attempt", "attempts of a delivery are no executions"],
  ["why.reconciling: lost", "a store loses commits (丢失); only workers are 失联"],
]);

/** Returns a text without commands, fields and identifiers, which are not translated. */
function withoutNames(text: string): string {
  return prose(text).replace(/`[^`]*`|\bbelfry(?: [a-z-]+)+(?: [A-Z]+)?|\b\w+\.\w+|\w+_\w+/g, " ");
}

function word(words: string): RegExp {
  return new RegExp(`(?<![\\w-])(?:${words})(?![\\w-])`, "i");
}

test("each glossary term has its Chinese translation", () => {
  const problems: string[] = [];
  const needed = new Set<string>();
  for (const [english, chinese] of TERMS) {
    const term = word(english);
    for (const [key, text] of EN) {
      const translated = ZH.get(key);
      const [found] = term.exec(withoutNames(text)) ?? [];
      if (!found || translated === undefined || new RegExp(chinese).test(translated)) continue;
      const exception = `${key}: ${found.toLowerCase()}`;
      if (EXCEPTIONS.has(exception)) needed.add(exception);
      else {
        const rule = `the English text has “${found}”, which the glossary renders as ${chinese}`;
        problems.push(problem("zh-CN", key, translated, rule, `use ${chinese} in: ${text}`));
      }
    }
  }
  expect(problems).toEqual([]);
  expect([...EXCEPTIONS.keys()].filter((exception) => !needed.has(exception))).toEqual([]);
});

/** Words that the glossary replaces, with their replacements. */
const REPLACED: ReadonlyArray<[words: string, instead: string]> = [
  ["reigns?|heirs?|ascends?", "leader, standby, take over"],
  ["gives? away|give it away", "hand over, drain"],
  ["beats?", "heartbeat"],
  ["flight", "in-flight commit"],
  ["woke|happenings?|said", "event, input, message"],
  ["tries|tried again|(?<!stay )a try|try \\{\\{", "attempt, retry"],
  ["come to nothing|taken away", "fail, be lost, be evicted"],
  ["go on|goes on|went on|go on where|begin anew", "continue, resume, restart"],
  ["begins?|began|begun", "start"],
  ["stands? where|in the way|misfit", "waiting reason, blocked by"],
  ["set aside|room|kept for", "reserve, capacity"],
  ["made up for|make up for", "catch up, backfill"],
  ["instants?|its time|how late", "scheduled time, start time, delay"],
  ["comes? due|is due|due", "fire, scheduled"],
  ["foretells?|foretold|to come", "forecast"],
  ["as many as|as many|as may be|as may|so many|so long|however many", "the limit, in numbers"],
  ["not over|is over|are over", "not ended, ended"],
  ["goes over|takes together", "task mapping, fan-in"],
  ["emptied", "drain"],
  ["made true", "commit, durable"],
  ["forgets?|forgotten", "remove, delete, expire"],
  ["answers for|whoever|who asks|asked for", "owner, user, caller"],
  ["somebody|nobody|somebody's", "a user, no user; or the passive voice"],
  ["where absent|no bound|where there is none", "default, unlimited, optional"],
  ["is called so|called so", "name"],
  ["ended well|ended badly|does wrong", "succeeded, failed"],
  ["unwell", "unhealthy"],
  ["besides", "in addition to"],
  ["heard(?: of)?|fallen silent", "heartbeat, report, connected"],
  ["lets? it|let all|let one", "name the action: undrain, resume, allow"],
  ["stands? by|stands? for|leads", "standby, merged into, leader"],
  ["there is no such|there is no", "does not exist"],
];

/** Texts that use such a word in its plain sense. */
const PLAIN: ReadonlySet<string> = new Set([
  "problem.leaderless",
  "server.situation.leaderless",
  "ledger.noneText",
  "apiError.not_found",
]);

test("English uses no word that the glossary replaces", () => {
  const problems: string[] = [];
  for (const [words, instead] of REPLACED) {
    const banned = word(words);
    for (const [key, text] of EN) {
      const [found] = banned.exec(text) ?? [];
      if (!found || (PLAIN.has(key) && found.toLowerCase().startsWith("there is no"))) continue;
      problems.push(problem("en", key, text, `“${found}” is no term of the field`, `write: ${instead}`));
    }
  }
  expect(problems).toEqual([]);
});

/** Former Chinese terms, with their replacements. */
const FORMER: ReadonlyArray<[former: RegExp, instead: string]> = [
  [/定时调度/, "定时任务"],
  [/补跑/, "补数"],
  [/纪元/, "任期"],
  [/迟到/, "延迟"],
  [/主服务端|主服务器/, "主节点"],
  [/备用/, "备节点"],
  [/服务器/, "服务端"],
  [/停止接收|恢复接收/, "停止调度、恢复调度"],
  [/(?<!触发)台账/, "触发台账"],
  [/汇合/, "触发规则"],
  [/作业/, "任务"],
  [/账户|帐号/, "账号"],
  [/尝试/, "执行、重试"],
  [/worker/i, "执行器"],
  [/运行记录/, "运行实例"],
];

test("Chinese uses no former terms", () => {
  const problems: string[] = [];
  for (const [former, instead] of FORMER) {
    for (const [key, text] of ZH) {
      if (former.test(prose(text))) {
        problems.push(problem("zh-CN", key, text, `${former.source} is not in use`, `write: ${instead}`));
      }
    }
  }
  expect(problems).toEqual([]);
});

/** Placeholders with Chinese values on a Chinese page, which need no adjacent space. */
const CHINESE_VALUES = /\{\{(?:status|becomes|section|now|rule|check)\}\}/g;
const HAN = "[\\u4e00-\\u9fff]";
const MARK = "[\\u4e00-\\u9fff，。：；？！、“”（）]";

test("Chinese has spaces around Latin letters and digits", () => {
  const problems: string[] = [];
  for (const [key, text] of ZH) {
    const filled = text
      .replace(/<\/?\w+>/g, "")
      .replace(CHINESE_VALUES, "值")
      .replace(/\{\{[^}]*\}\}/g, "V9");
    const [found] = new RegExp(`${HAN}[A-Za-z0-9]|[A-Za-z0-9]${HAN}`).exec(filled) ?? [];
    if (found) {
      const proposal = `${found[0]} ${found[1]}`;
      problems.push(problem("zh-CN", key, text, `no space in “${found}”`, `write “${proposal}”`));
    }
  }
  expect(problems).toEqual([]);
});

test("Chinese has full-width punctuation", () => {
  const full: Record<string, string> = { ",": "，", ".": "。", ":": "：", ";": "；", "!": "！", "?": "？" };
  const problems: string[] = [];
  for (const [key, text] of ZH) {
    const plain = text.replace(/<\/?\w+>/g, "").replace(/\{\{[^}]*\}\}/g, "V");
    const [found] = new RegExp(`${MARK}[,.:;!?]|[,.:;!?] ?${HAN}`).exec(plain) ?? [];
    if (found) {
      const proposal = found.replace(/[,.:;!?] ?/, (mark) => full[mark.trim()] ?? mark);
      problems.push(problem("zh-CN", key, text, `ASCII punctuation in “${found}”`, `write “${proposal}”`));
    }
    const [beside] = new RegExp(`[，。：；？！、] | [，。：；？！、]`).exec(plain) ?? [];
    if (beside) {
      problems.push(
        problem("zh-CN", key, text, "a space beside full-width punctuation", `write “${beside.trim()}”`),
      );
    }
  }
  expect(problems).toEqual([]);
});

const WORDS_MAX = 30;

test("English sentences are short", () => {
  const problems: string[] = [];
  for (const [key, text] of EN) {
    for (const sentence of text.split(/(?<=[.!?])\s+|\n/)) {
      const count = sentence.split(/\s+/).filter((each) => /\w/.test(each)).length;
      if (count > WORDS_MAX) {
        const rule = `a sentence has at most ${WORDS_MAX} words; this one has ${count}`;
        problems.push(problem("en", key, sentence, rule, "split the sentence"));
      }
    }
  }
  expect(problems).toEqual([]);
});
