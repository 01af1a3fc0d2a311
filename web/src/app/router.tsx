/** Routes. Every view and its filters are part of the URL, so that users can share it. */

import { createRootRoute, createRoute, createRouter, redirect } from "@tanstack/react-router";

import { Loading } from "../ui/kit";
import type { AccountsSearch, TokensSearch } from "../lib/access";
import type { AlertsSearch, NotificationsSearch } from "../lib/alerts";
import type { AuditSearch } from "../lib/audit";
import type { CompareSearch } from "../lib/compare";
import type { FailuresSearch } from "../lib/failures";
import { parseSearch, stringifySearch, type Search, text } from "../lib/search";
import { ErrorPage } from "./ErrorPage";
import { lazyPage } from "./lazyPage";
import { NotFound } from "./NotFound";
import { Shell } from "./Shell";

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });

/** The range of the charts of a page. */
interface HistorySearch {
  range?: string;
}

const overview = createRoute({
  getParentRoute: () => root,
  path: "/",
  validateSearch: (search: Search): HistorySearch => ({ range: text(search.range) }),
  component: lazyPage(() => import("../pages/overview/OverviewPage"), "OverviewPage"),
});

export interface JobsSearch {
  status?: string;
  owner?: string;
  namespace?: string;
  queue?: string;
  /** A part of the name. */
  text?: string;
  name?: string;
  /** The name of the workflow whose run created the job. */
  workflow?: string;
  label?: string[];
  worker?: string;
  /** The id of a schedule. */
  schedule?: string;
  backfill?: string;
  /** The id of a run of a workflow. */
  run?: string;
  /** The id of a service. */
  service?: string;
  since?: string;
  after?: string;
  before?: string;
}

const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: (search: Search): JobsSearch => ({
    status: text(search.status),
    owner: text(search.owner),
    namespace: text(search.namespace),
    queue: text(search.queue),
    text: text(search.text),
    name: text(search.name),
    workflow: text(search.workflow),
    label: search.label === undefined ? undefined : [search.label].flat(),
    worker: text(search.worker),
    schedule: text(search.schedule),
    backfill: text(search.backfill),
    run: text(search.run),
    service: text(search.service),
    since: text(search.since),
    after: text(search.after),
    before: text(search.before),
  }),
  component: lazyPage(() => import("../pages/jobs/JobsPage"), "JobsPage"),
});

export interface JobSearch {
  tab?: string;
  /** The number of an execution. */
  execution?: string;
  /** A line of the log. */
  line?: string;
}

const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$id",
  validateSearch: (search: Search): JobSearch => ({
    tab: text(search.tab),
    execution: text(search.execution),
    line: text(search.line),
  }),
  component: lazyPage(() => import("../pages/job/JobPage"), "JobPage"),
});

/** All jobs of a name in a namespace. */
interface JobNameSearch extends HistorySearch {
  namespace?: string;
}

const jobName = createRoute({
  getParentRoute: () => root,
  path: "/jobs/named/$name",
  validateSearch: (search: Search): JobNameSearch => ({
    namespace: text(search.namespace),
    range: text(search.range),
  }),
  component: lazyPage(() => import("../pages/jobName/JobNamePage"), "JobNamePage"),
});

const failures = createRoute({
  getParentRoute: () => root,
  path: "/failures",
  validateSearch: (search: Search): FailuresSearch => ({
    state: text(search.state),
    name: text(search.name),
    text: text(search.text),
    namespace: text(search.namespace),
    since: text(search.since),
    order: text(search.order),
  }),
  component: lazyPage(() => import("../pages/failures/FailuresPage"), "FailuresPage"),
});

const failure = createRoute({
  getParentRoute: () => root,
  path: "/failures/$id",
  validateSearch: (search: Search): { namespace?: string } => ({ namespace: text(search.namespace) }),
  component: lazyPage(() => import("../pages/failure/FailurePage"), "FailurePage"),
});

const compare = createRoute({
  getParentRoute: () => root,
  path: "/compare",
  validateSearch: (search: Search): CompareSearch => ({
    a: text(search.a),
    b: text(search.b),
    execution_a: text(search.execution_a),
    execution_b: text(search.execution_b),
    step: text(search.step),
    numbers: text(search.numbers),
  }),
  component: lazyPage(() => import("../pages/compare/ComparePage"), "ComparePage"),
});

const submit = createRoute({
  getParentRoute: () => root,
  path: "/submit",
  validateSearch: (search: Search): { from?: string } => ({ from: text(search.from) }),
  component: lazyPage(() => import("../pages/submit/SubmitPage"), "SubmitPage"),
});

export interface SchedulesSearch {
  status?: string;
  text?: string;
  owner?: string;
  namespace?: string;
  label?: string[];
  sort?: string;
}

const schedules = createRoute({
  getParentRoute: () => root,
  path: "/schedules",
  validateSearch: (search: Search): SchedulesSearch => ({
    status: text(search.status),
    text: text(search.text),
    owner: text(search.owner),
    namespace: text(search.namespace),
    label: search.label === undefined ? undefined : [search.label].flat(),
    sort: text(search.sort),
  }),
  component: lazyPage(() => import("../pages/schedules/SchedulesPage"), "SchedulesPage"),
});

const timetable = createRoute({
  getParentRoute: () => root,
  path: "/schedules/timetable",
  validateSearch: (search: Search): { span?: string } => ({ span: text(search.span) }),
  component: lazyPage(() => import("../pages/schedules/TimetablePage"), "TimetablePage"),
});

const newSchedule = createRoute({
  getParentRoute: () => root,
  path: "/schedules/new",
  validateSearch: (search: Search): { from?: string } => ({ from: text(search.from) }),
  component: lazyPage(() => import("../pages/schedules/EditPage"), "NewSchedulePage"),
});

export interface ScheduleSearch extends HistorySearch {
  namespace?: string;
  tab?: string;
  outcome?: string;
  cause?: string;
  backfill?: string;
}

const schedule = createRoute({
  getParentRoute: () => root,
  path: "/schedules/$id",
  validateSearch: (search: Search): ScheduleSearch => ({
    range: text(search.range),
    namespace: text(search.namespace),
    tab: text(search.tab),
    outcome: text(search.outcome),
    cause: text(search.cause),
    backfill: text(search.backfill),
  }),
  component: lazyPage(() => import("../pages/schedule/SchedulePage"), "SchedulePage"),
});

const editSchedule = createRoute({
  getParentRoute: () => root,
  path: "/schedules/$id/edit",
  component: lazyPage(() => import("../pages/schedules/EditPage"), "EditSchedulePage"),
});

export interface WorkflowsSearch {
  text?: string;
  owner?: string;
  namespace?: string;
  label?: string[];
}

const workflows = createRoute({
  getParentRoute: () => root,
  path: "/workflows",
  validateSearch: (search: Search): WorkflowsSearch => ({
    text: text(search.text),
    owner: text(search.owner),
    namespace: text(search.namespace),
    label: search.label === undefined ? undefined : [search.label].flat(),
  }),
  component: lazyPage(() => import("../pages/workflows/WorkflowsPage"), "WorkflowsPage"),
});

const newWorkflow = createRoute({
  getParentRoute: () => root,
  path: "/workflows/new",
  validateSearch: (search: Search): { from?: string } => ({ from: text(search.from) }),
  component: lazyPage(() => import("../pages/workflows/EditPage"), "NewWorkflowPage"),
});

export interface WorkflowSearch {
  namespace?: string;
  tab?: string;
  step?: string;
}

const workflow = createRoute({
  getParentRoute: () => root,
  path: "/workflows/$id",
  validateSearch: (search: Search): WorkflowSearch => ({
    namespace: text(search.namespace),
    tab: text(search.tab),
    step: text(search.step),
  }),
  component: lazyPage(() => import("../pages/workflow/WorkflowPage"), "WorkflowPage"),
});

const editWorkflow = createRoute({
  getParentRoute: () => root,
  path: "/workflows/$id/edit",
  component: lazyPage(() => import("../pages/workflows/EditPage"), "EditWorkflowPage"),
});

export interface RunsSearch {
  status?: string;
  /** Id or name of a workflow. */
  workflow?: string;
  namespace?: string;
  /** The id of a schedule. */
  schedule?: string;
  /** Range of the creation. */
  after?: string;
  before?: string;
}

const runs = createRoute({
  getParentRoute: () => root,
  path: "/runs",
  validateSearch: (search: Search): RunsSearch => ({
    status: text(search.status),
    workflow: text(search.workflow),
    namespace: text(search.namespace),
    schedule: text(search.schedule),
    after: text(search.after),
    before: text(search.before),
  }),
  component: lazyPage(() => import("../pages/runs/RunsPage"), "RunsPage"),
});

export interface RunSearch {
  tab?: string;
  step?: string;
  /** Job of an element whose log is shown instead of the step's own log. */
  job?: string;
  line?: string;
}

const run = createRoute({
  getParentRoute: () => root,
  path: "/runs/$id",
  validateSearch: (search: Search): RunSearch => ({
    tab: text(search.tab),
    step: text(search.step),
    job: text(search.job),
    line: text(search.line),
  }),
  component: lazyPage(() => import("../pages/run/RunPage"), "RunPage"),
});

export interface ServicesSearch {
  text?: string;
  owner?: string;
  namespace?: string;
  label?: string[];
}

const services = createRoute({
  getParentRoute: () => root,
  path: "/services",
  validateSearch: (search: Search): ServicesSearch => ({
    text: text(search.text),
    owner: text(search.owner),
    namespace: text(search.namespace),
    label: search.label === undefined ? undefined : [search.label].flat(),
  }),
  component: lazyPage(() => import("../pages/services/ServicesPage"), "ServicesPage"),
});

const newService = createRoute({
  getParentRoute: () => root,
  path: "/services/new",
  validateSearch: (search: Search): { from?: string } => ({ from: text(search.from) }),
  component: lazyPage(() => import("../pages/services/EditPage"), "NewServicePage"),
});

export interface ServiceSearch {
  tab?: string;
  /** The revision whose changes are shown. */
  revision?: string;
}

const service = createRoute({
  getParentRoute: () => root,
  path: "/services/$namespace/$name",
  validateSearch: (search: Search): ServiceSearch => ({
    tab: text(search.tab),
    revision: text(search.revision),
  }),
  component: lazyPage(() => import("../pages/service/ServicePage"), "ServicePage"),
});

const editService = createRoute({
  getParentRoute: () => root,
  path: "/services/$namespace/$name/edit",
  component: lazyPage(() => import("../pages/services/EditPage"), "EditServicePage"),
});

/** Redirects from the id of a service to its page. */
const serviceById = createRoute({
  getParentRoute: () => root,
  path: "/services/$id",
  loader: async ({ params }) => {
    const { unwrap, api } = await import("../api/client");
    const request = api.GET("/api/v1/services/{name}", { params: { path: { name: params.id } } });
    const { namespace, name } = await unwrap(request);
    // eslint-disable-next-line @typescript-eslint/only-throw-error -- the router expects a thrown redirect
    throw redirect({ to: "/services/$namespace/$name", params: { namespace, name }, replace: true });
  },
});

const calendars = createRoute({
  getParentRoute: () => root,
  path: "/calendars",
  component: lazyPage(() => import("../pages/calendars/CalendarsPage"), "CalendarsPage"),
});

const newCalendar = createRoute({
  getParentRoute: () => root,
  path: "/calendars/new",
  component: lazyPage(() => import("../pages/calendars/EditPage"), "NewCalendarPage"),
});

export interface CalendarSearch {
  namespace?: string;
  year?: string;
}

const calendarSearch = (search: Search): CalendarSearch => ({
  namespace: text(search.namespace),
  year: text(search.year),
});

const calendar = createRoute({
  getParentRoute: () => root,
  path: "/calendars/$name",
  validateSearch: calendarSearch,
  component: lazyPage(() => import("../pages/calendars/CalendarPage"), "CalendarPage"),
});

const editCalendar = createRoute({
  getParentRoute: () => root,
  path: "/calendars/$name/edit",
  validateSearch: calendarSearch,
  component: lazyPage(() => import("../pages/calendars/EditPage"), "EditCalendarPage"),
});

const workers = createRoute({
  getParentRoute: () => root,
  path: "/workers",
  component: lazyPage(() => import("../pages/workers/WorkersPage"), "WorkersPage"),
});

interface WorkerSearch extends HistorySearch {
  /** Order of the executions by use. */
  order?: string;
}

const worker = createRoute({
  getParentRoute: () => root,
  path: "/workers/$id",
  validateSearch: (search: Search): WorkerSearch => ({
    range: text(search.range),
    order: text(search.order),
  }),
  component: lazyPage(() => import("../pages/workers/WorkerPage"), "WorkerPage"),
});

const servers = createRoute({
  getParentRoute: () => root,
  path: "/servers",
  component: lazyPage(() => import("../pages/servers/ServersPage"), "ServersPage"),
});

interface QueuesSearch extends HistorySearch {
  /** The queue whose settings are edited; `+` for a new one. */
  edit?: string;
  /** The queue whose history is shown. */
  history?: string;
}

const queues = createRoute({
  getParentRoute: () => root,
  path: "/queues",
  validateSearch: (search: Search): QueuesSearch => ({
    edit: text(search.edit),
    history: text(search.history),
    range: text(search.range),
  }),
  component: lazyPage(() => import("../pages/queues/QueuesPage"), "QueuesPage"),
});

interface NamespacesSearch {
  /** The namespace whose settings are edited; `+` for a new one. */
  edit?: string;
}

const namespaces = createRoute({
  getParentRoute: () => root,
  path: "/namespaces",
  validateSearch: (search: Search): NamespacesSearch => ({ edit: text(search.edit) }),
  component: lazyPage(() => import("../pages/namespaces/NamespacesPage"), "NamespacesPage"),
});

const artifacts = createRoute({
  getParentRoute: () => root,
  path: "/artifacts",
  validateSearch: (search: Search): { name?: string; namespace?: string } => ({
    name: text(search.name),
    namespace: text(search.namespace),
  }),
  component: lazyPage(() => import("../pages/artifacts/ArtifactsPage"), "ArtifactsPage"),
});

const events = createRoute({
  getParentRoute: () => root,
  path: "/events",
  validateSearch: (search: Search): { type?: string; find?: string } => ({
    type: text(search.type),
    find: text(search.find),
  }),
  component: lazyPage(() => import("../pages/events/EventsPage"), "EventsPage"),
});

const alerts = createRoute({
  getParentRoute: () => root,
  path: "/alerts",
  validateSearch: (search: Search): AlertsSearch => ({
    namespace: text(search.namespace),
    status: text(search.status),
    severity: text(search.severity),
    rule: text(search.rule),
    subject: text(search.subject),
  }),
  component: lazyPage(() => import("../pages/alerts/AlertsPage"), "AlertsPage"),
});

const alert = createRoute({
  getParentRoute: () => root,
  path: "/alerts/$id",
  component: lazyPage(() => import("../pages/alerts/AlertPage"), "AlertPage"),
});

const namespaceSearch = (search: Search): { namespace?: string } => ({ namespace: text(search.namespace) });

export interface AlertRulesSearch {
  namespace?: string;
  /** The rule that is edited, as `namespace/name`; `+` for a new one. */
  edit?: string;
}

const alertRules = createRoute({
  getParentRoute: () => root,
  path: "/alerts/rules",
  validateSearch: (search: Search): AlertRulesSearch => ({
    namespace: text(search.namespace),
    edit: text(search.edit),
  }),
  component: lazyPage(() => import("../pages/alerts/RulesPage"), "RulesPage"),
});

const channels = createRoute({
  getParentRoute: () => root,
  path: "/alerts/channels",
  validateSearch: namespaceSearch,
  component: lazyPage(() => import("../pages/alerts/ChannelsPage"), "ChannelsPage"),
});

const monitors = createRoute({
  getParentRoute: () => root,
  path: "/alerts/monitors",
  validateSearch: namespaceSearch,
  component: lazyPage(() => import("../pages/alerts/MonitorsPage"), "MonitorsPage"),
});

const monitor = createRoute({
  getParentRoute: () => root,
  path: "/alerts/monitors/$namespace/$name",
  component: lazyPage(() => import("../pages/alerts/MonitorPage"), "MonitorPage"),
});

const secrets = createRoute({
  getParentRoute: () => root,
  path: "/secrets",
  validateSearch: namespaceSearch,
  component: lazyPage(() => import("../pages/secrets/SecretsPage"), "SecretsPage"),
});

const silences = createRoute({
  getParentRoute: () => root,
  path: "/alerts/silences",
  validateSearch: namespaceSearch,
  component: lazyPage(() => import("../pages/alerts/SilencesPage"), "SilencesPage"),
});

const notifications = createRoute({
  getParentRoute: () => root,
  path: "/alerts/notifications",
  validateSearch: (search: Search): NotificationsSearch => ({
    namespace: text(search.namespace),
    status: text(search.status),
    rule: text(search.rule),
    channel: text(search.channel),
  }),
  component: lazyPage(() => import("../pages/alerts/NotificationsPage"), "NotificationsPage"),
});

const accounts = createRoute({
  getParentRoute: () => root,
  path: "/access",
  validateSearch: (search: Search): AccountsSearch => ({
    text: text(search.text),
    kind: text(search.kind),
    state: text(search.state),
  }),
  component: lazyPage(() => import("../pages/access/AccountsPage"), "AccountsPage"),
});

const account = createRoute({
  getParentRoute: () => root,
  path: "/access/accounts/$name",
  component: lazyPage(() => import("../pages/access/AccountPage"), "AccountPage"),
});

const roles = createRoute({
  getParentRoute: () => root,
  path: "/access/roles",
  component: lazyPage(() => import("../pages/access/RolesPage"), "RolesPage"),
});

const newRole = createRoute({
  getParentRoute: () => root,
  path: "/access/roles/new",
  component: lazyPage(() => import("../pages/access/RoleEditPage"), "NewRolePage"),
});

const role = createRoute({
  getParentRoute: () => root,
  path: "/access/roles/$name",
  component: lazyPage(() => import("../pages/access/RolePage"), "RolePage"),
});

const editRole = createRoute({
  getParentRoute: () => root,
  path: "/access/roles/$name/edit",
  component: lazyPage(() => import("../pages/access/RoleEditPage"), "EditRolePage"),
});

const tokensSearch = (search: Search): TokensSearch => ({
  kind: text(search.kind),
  status: text(search.status),
});

const allTokens = createRoute({
  getParentRoute: () => root,
  path: "/access/tokens",
  validateSearch: tokensSearch,
  component: lazyPage(() => import("../pages/access/TokensPage"), "AllTokensPage"),
});

const audit = createRoute({
  getParentRoute: () => root,
  path: "/access/audit",
  validateSearch: (search: Search): AuditSearch => ({
    actor: text(search.actor),
    object: text(search.object),
    resource: text(search.resource),
    outcome: text(search.outcome),
    days: text(search.days),
  }),
  component: lazyPage(() => import("../pages/access/AuditPage"), "AuditPage"),
});

/** The tokens of the caller. */
const tokens = createRoute({
  getParentRoute: () => root,
  path: "/tokens",
  validateSearch: tokensSearch,
  component: lazyPage(() => import("../pages/access/TokensPage"), "TokensPage"),
});

const settings = createRoute({
  getParentRoute: () => root,
  path: "/settings",
  component: lazyPage(() => import("../pages/settings/SettingsPage"), "SettingsPage"),
});

/** Redirects from an execution id to its job. */
const execution = createRoute({
  getParentRoute: () => root,
  path: "/executions/$id",
  loader: async ({ params }) => {
    const { unwrap, api } = await import("../api/client");
    const request = api.GET("/api/v1/executions/{id}", { params: { path: { id: params.id } } });
    const found = await unwrap(request);
    // eslint-disable-next-line @typescript-eslint/only-throw-error -- the router expects a thrown redirect
    throw redirect({
      to: "/jobs/$id",
      params: { id: found.job_id },
      search: { execution: String(found.number) },
      replace: true,
    });
  },
});

const routes = [
  overview,
  jobs,
  job,
  jobName,
  failures,
  failure,
  compare,
  submit,
  schedules,
  timetable,
  newSchedule,
  schedule,
  editSchedule,
  workflows,
  newWorkflow,
  workflow,
  editWorkflow,
  runs,
  run,
  services,
  newService,
  service,
  editService,
  serviceById,
  calendars,
  newCalendar,
  calendar,
  editCalendar,
  workers,
  worker,
  servers,
  queues,
  namespaces,
  artifacts,
  events,
  alerts,
  alert,
  alertRules,
  channels,
  secrets,
  monitors,
  monitor,
  silences,
  notifications,
  accounts,
  account,
  roles,
  newRole,
  role,
  editRole,
  allTokens,
  audit,
  tokens,
  settings,
  execution,
];

export const router = createRouter({
  routeTree: root.addChildren(routes),
  parseSearch,
  stringifySearch,
  defaultPreload: "intent",
  scrollRestoration: true,
  defaultNotFoundComponent: NotFound,
  defaultErrorComponent: ErrorPage,
  // Shown inside the frame while a page loads its code or data.
  defaultPendingComponent: Loading,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
