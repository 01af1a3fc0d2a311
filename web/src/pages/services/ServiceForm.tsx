/** Form with the common members of a service. Other members are kept in the file. */

import {
  Accordion,
  ActionIcon,
  Autocomplete,
  Button,
  Input,
  NumberInput,
  Select,
  Switch,
  TextInput,
} from "@mantine/core";
import { Plus, X } from "lucide-react";
import { useTranslation } from "react-i18next";

import type { FieldError, JobSpec, Port, ServiceSpec } from "../../api/schema";
import type { Runtime } from "../../lib/runtimes";
import { CHECK_KINDS, checkKindOf, type CheckKind, toPort } from "../../lib/services";
import { KeyValueField } from "../submit/fields";
import { ContainerItem, EnvField, RunFields } from "../submit/RunFields";
import style from "../schedules/edit.module.css";
import own from "./services.module.css";

/** Runtimes of services: a request has no ports and no health checks. */
const RUNTIMES = ["process", "container"] as const satisfies readonly Runtime[];

interface Props {
  spec: ServiceSpec;
  set: (path: string[], value: unknown) => void;
  fields: readonly FieldError[];
  /** Whether the service exists, so that its name and namespace cannot change. */
  isNameFixed: boolean;
}

export function ServiceForm({ spec, set, fields, isNameFixed }: Props) {
  const { t } = useTranslation();
  // The file may lack the job while the user types.
  const job = (spec.job as JobSpec | null | undefined) ?? ({} as JobSpec);
  const jobFields = fields
    .filter((field) => field.path.startsWith("job."))
    .map((field) => ({ ...field, path: field.path.slice("job.".length) }));
  const setJob = (path: string[], value: unknown) => set(["job", ...path], value);
  const error = (path: string) => fields.find((field) => field.path === path)?.detail;
  const setText = (path: string[], value: string) => set(path, value.trim() === "" ? undefined : value);

  return (
    <div className={style.fields} data-testid="service-form">
      <div className={style.pair}>
        <TextInput
          label={t("submit.name")}
          value={spec.name ?? ""}
          onChange={(event) => setText(["name"], event.currentTarget.value)}
          error={error("name")}
          readOnly={isNameFixed}
          description={isNameFixed ? t("service.nameStays") : undefined}
          inputWrapperOrder={["label", "input", "description", "error"]}
          data-testid="name"
        />
        <TextInput
          label={t("job.details.namespace")}
          placeholder="default"
          value={spec.namespace ?? ""}
          onChange={(event) => setText(["namespace"], event.currentTarget.value)}
          error={error("namespace")}
          readOnly={isNameFixed}
        />
      </div>
      <div className={style.pair}>
        <NumberInput
          label={t("service.replicas")}
          placeholder="1"
          min={0}
          max={1_000}
          value={spec.replicas ?? ""}
          onChange={(value) => set(["replicas"], value === "" ? undefined : Number(value))}
          error={error("replicas")}
          disabled={(spec.per_worker === true || spec.scaling != null) && spec.replicas == null}
          description={spec.scaling != null ? t("service.fixedByScaling") : undefined}
          inputWrapperOrder={["label", "input", "description", "error"]}
          data-testid="replicas"
        />
        <TextInput
          label={t("job.details.owner")}
          placeholder={t("common.optional")}
          value={spec.owner ?? ""}
          onChange={(event) => setText(["owner"], event.currentTarget.value)}
          error={error("owner")}
        />
      </div>
      <Switch
        label={t("service.perWorker")}
        description={t("service.perWorkerHint")}
        checked={spec.per_worker ?? false}
        onChange={(event) => set(["per_worker"], event.currentTarget.checked || undefined)}
      />
      <TextInput
        label={t("schedule.description")}
        placeholder={t("common.optional")}
        value={spec.description ?? ""}
        onChange={(event) => setText(["description"], event.currentTarget.value)}
        error={error("description")}
      />
      <h3>{t("submit.kind")}</h3>
      <RunFields spec={job} set={setJob} fields={jobFields} runtimes={RUNTIMES} />
      <h3>{t("service.ports")}</h3>
      <PortFields job={job} set={setJob} fields={jobFields} />
      <h3>{t("service.readiness")}</h3>
      <ReadinessFields job={job} set={setJob} fields={jobFields} />
      <TextInput
        label={t("service.minHealthy")}
        placeholder="10s"
        description={t("service.minHealthyHint")}
        inputWrapperOrder={["label", "input", "description", "error"]}
        value={spec.min_healthy ?? ""}
        onChange={(event) => setText(["min_healthy"], event.currentTarget.value)}
        error={error("min_healthy")}
        data-testid="min-healthy"
      />
      <Accordion chevronPosition="left" classNames={{ root: style.more, content: style.moreContent }}>
        <Accordion.Item value="update">
          <Accordion.Control>{t("service.updatePolicy")}</Accordion.Control>
          <Accordion.Panel>
            <UpdateFields spec={spec} set={set} fields={fields} />
          </Accordion.Panel>
        </Accordion.Item>
        <Accordion.Item value="resources">
          <Accordion.Control>{t("submit.resources")}</Accordion.Control>
          <Accordion.Panel>
            <div className={style.pair}>
              <TextInput
                label="CPU"
                placeholder="100m"
                value={job.resources?.cpu ?? ""}
                onChange={(event) => setText(["job", "resources", "cpu"], event.currentTarget.value)}
                error={error("job.resources.cpu")}
              />
              <TextInput
                label={t("submit.memory")}
                placeholder="64MiB"
                value={job.resources?.memory ?? ""}
                onChange={(event) => setText(["job", "resources", "memory"], event.currentTarget.value)}
                error={error("job.resources.memory")}
              />
            </div>
          </Accordion.Panel>
        </Accordion.Item>
        <ContainerItem spec={job} set={setJob} fields={jobFields} />
        <Accordion.Item value="words">
          <Accordion.Control>{t("submit.labelsAndEnv")}</Accordion.Control>
          <Accordion.Panel>
            <KeyValueField
              label={t("submit.labels")}
              placeholder="team=pay"
              value={spec.labels ?? {}}
              onChange={(value) => set(["labels"], value)}
              error={fields.find((field) => field.path.startsWith("labels"))?.detail}
            />
            <EnvField spec={job} set={setJob} fields={jobFields} />
          </Accordion.Panel>
        </Accordion.Item>
      </Accordion>
    </div>
  );
}

interface JobFieldsProps {
  job: JobSpec;
  set: (path: string[], value: unknown) => void;
  fields: readonly FieldError[];
}

/** The ports of the file; a value of another type counts as none. */
function portsOf(job: JobSpec): readonly Port[] {
  return Array.isArray(job.ports) ? job.ports : [];
}

function PortFields({ job, set, fields }: JobFieldsProps) {
  const { t } = useTranslation();
  const ports = portsOf(job);
  const change = (next: readonly Port[]) => set(["ports"], next.length > 0 ? next : undefined);
  const replace = (index: number, port: Port) => change(ports.map((each, i) => (i === index ? port : each)));
  const error = (index: number, member: string) =>
    fields.find(({ path }) => path === `ports[${index}].${member}` || path === `ports[${index}]`)?.detail;
  const errorOfList = fields.find(({ path }) => path === "ports")?.detail;
  const free = ["http", "grpc", "admin"].find((name) => !ports.some((port) => port.name === name));
  return (
    <>
      <p className="quiet">{t("service.portsHint")}</p>
      {ports.map((port, i) => (
        <div key={i} className={own.port}>
          <TextInput
            aria-label={t("service.portName")}
            placeholder="http"
            value={port.name ?? ""}
            onChange={(event) => replace(i, { ...port, name: event.currentTarget.value })}
            error={error(i, "name")}
          />
          <NumberInput
            aria-label={t("service.portNumber")}
            placeholder={t("service.anyPort")}
            min={1}
            max={65_535}
            value={port.port ?? ""}
            onChange={(value) =>
              replace(i, value === "" ? { name: port.name } : { ...port, port: Number(value) })
            }
            error={error(i, "port")}
          />
          <ActionIcon
            aria-label={t("service.removePort", { name: port.name })}
            onClick={() => change(ports.filter((_, index) => index !== i))}
          >
            <X size={15} />
          </ActionIcon>
        </div>
      ))}
      <div>
        <Button
          variant="default"
          size="compact-sm"
          leftSection={<Plus size={13} />}
          onClick={() => change([...ports, { name: free ?? `port-${ports.length + 1}` }])}
          data-testid="add-port"
        >
          {t("service.addPort")}
        </Button>
      </div>
      {errorOfList && <Input.Error>{errorOfList}</Input.Error>}
    </>
  );
}

/** The readiness check by HTTP or TCP. Other kinds, and the startup and liveness checks, are set in the file. */
function ReadinessFields({ job, set, fields }: JobFieldsProps) {
  const { t } = useTranslation();
  const check = job.health?.readiness ?? null;
  const kind = checkKindOf(check);
  const ports = portsOf(job).map(({ name }) => name);
  const at = ["health", "readiness"];
  const error = (member: string) =>
    fields.find(({ path }) => path === `health.readiness.${member}` || path === "health.readiness")?.detail;
  const choose = (next: CheckKind) => {
    if (next === "none") return set(at, undefined);
    // A check needs a port.
    if (ports.length === 0) set(["ports"], [{ name: "http" }]);
    const port = check?.http?.port ?? check?.tcp?.port ?? ports[0] ?? "http";
    const { interval, timeout, failure_threshold, success_threshold, initial_delay } = check ?? {};
    const times = { interval, timeout, failure_threshold, success_threshold, initial_delay };
    const known = Object.fromEntries(Object.entries(times).filter(([, value]) => value !== undefined));
    set(at, { ...(next === "http" ? { http: { path: "/", port } } : { tcp: { port } }), ...known });
  };
  // Other kinds are offered only if the file has them.
  const kinds = CHECK_KINDS.filter((each) => ["none", "http", "tcp", kind].includes(each));
  const checkedPort = kind === "http" ? check?.http?.port : kind === "tcp" ? check?.tcp?.port : undefined;
  return (
    <>
      <Select
        aria-label={t("service.readiness")}
        value={kind}
        onChange={(value) => value !== null && choose(value)}
        data={kinds.map((value) => ({ value, label: t(`checkKind.${value}`) }))}
        description={kind === "none" ? t("service.noCheckHint") : undefined}
        inputWrapperOrder={["label", "input", "description", "error"]}
        allowDeselect={false}
        error={fields.find(({ path }) => path === "health.readiness" || path === "health")?.detail}
        data-testid="readiness"
      />
      {(kind === "http" || kind === "tcp") && (
        <div className={own.check}>
          <Autocomplete
            label={t("service.checkedPort")}
            value={checkedPort === undefined ? "" : String(checkedPort)}
            onChange={(value) => set([...at, kind, "port"], toPort(value))}
            data={[...new Set(ports)]}
            error={error(`${kind}.port`)}
          />
          {kind === "http" && (
            <TextInput
              label={t("service.path")}
              placeholder="/"
              value={check?.http?.path ?? ""}
              onChange={(event) => set([...at, "http", "path"], event.currentTarget.value || undefined)}
              error={error("http.path")}
            />
          )}
          <TextInput
            label={t("service.interval")}
            placeholder="10s"
            value={check?.interval ?? ""}
            onChange={(event) => set([...at, "interval"], event.currentTarget.value || undefined)}
            error={error("interval")}
          />
        </div>
      )}
    </>
  );
}

function UpdateFields({ spec, set, fields }: Pick<Props, "spec" | "set" | "fields">) {
  const { t } = useTranslation();
  const update = spec.update ?? {};
  const error = (member: string) => fields.find(({ path }) => path === `update.${member}`)?.detail;
  const number = (member: "max_surge" | "max_unavailable" | "canaries", placeholder: string) => (
    <NumberInput
      label={t(`service.update.${member}`)}
      placeholder={placeholder}
      min={0}
      max={1_000}
      value={update[member] ?? ""}
      onChange={(value) => set(["update", member], value === "" ? undefined : Number(value))}
      error={error(member)}
    />
  );
  return (
    <>
      <div className={style.pair}>
        {number("max_surge", "1")}
        {number("max_unavailable", "0")}
      </div>
      <div className={style.pair}>
        {number("canaries", "0")}
        <TextInput
          label={t("service.update.progress_deadline")}
          placeholder="10m"
          value={update.progress_deadline ?? ""}
          onChange={(event) => set(["update", "progress_deadline"], event.currentTarget.value || undefined)}
          error={error("progress_deadline")}
        />
      </div>
      <Switch
        label={t("service.update.auto_promote")}
        checked={update.auto_promote ?? false}
        disabled={!update.canaries}
        onChange={(event) => set(["update", "auto_promote"], event.currentTarget.checked || undefined)}
      />
      <Switch
        label={t("service.update.auto_rollback")}
        checked={update.auto_rollback ?? true}
        onChange={(event) =>
          set(["update", "auto_rollback"], event.currentTarget.checked ? undefined : false)
        }
      />
    </>
  );
}
