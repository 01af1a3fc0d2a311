/** What a job runs: the runtime, and its fields. Fields that are not here are kept in the file. */

import {
  Accordion,
  Autocomplete,
  Input,
  SegmentedControl,
  Select,
  Switch,
  Textarea,
  TextInput,
} from "@mantine/core";
import { useTranslation } from "react-i18next";

import type { FieldError, HttpMethod, JobSpec, PullPolicy } from "../../api/schema";
import { splitList } from "../../lib/quantities";
import {
  defaultMethod,
  fieldsOf,
  METHODS,
  newRun,
  PULL_POLICIES,
  type Runtime,
  runtimeOf,
  RUNTIMES,
  textOf,
  withContainerProgram,
  withProgram,
  wordsOf,
} from "../../lib/runtimes";
import {
  defaultNetwork,
  levelChange,
  levelOf,
  networkOf,
  SANDBOX_LEVELS,
  SANDBOX_NETWORKS,
} from "../../lib/sandboxes";
import { CommandLine, Interpreter, KeyValueField, ListField, Script } from "./fields";
import style from "./submit.module.css";

interface Props {
  spec: JobSpec;
  set: (path: string[], value: unknown) => void;
  fields: readonly FieldError[];
}

interface RunFieldsProps extends Props {
  /** Runtimes to choose from; the one of the file is always among them. */
  runtimes?: readonly Runtime[];
}

/** The runtime of a job, and its most important fields. */
export function RunFields({ spec, set, fields, runtimes = RUNTIMES }: RunFieldsProps) {
  const { t } = useTranslation();
  const runtime = runtimeOf(spec);
  const choices = RUNTIMES.filter((each) => each === runtime || runtimes.includes(each));
  return (
    <>
      <Input.Wrapper
        label={t("submit.runtime")}
        labelElement="div"
        size="xs"
        error={fields.find((field) => field.path === "run")?.detail}
      >
        <SegmentedControl
          aria-label={t("submit.runtime")}
          fullWidth
          value={runtime ?? ""}
          onChange={(next) => next !== "" && next !== runtime && set(["run"], newRun(next))}
          data={choices.map((value) => ({ value, label: t(`runtime.${value}`) }))}
          data-testid="runtime"
        />
      </Input.Wrapper>
      {runtime === "process" && <ProcessFields spec={spec} set={set} fields={fields} />}
      {runtime === "container" && <ContainerFields spec={spec} set={set} fields={fields} />}
      {runtime === "http" && <HttpFields spec={spec} set={set} fields={fields} />}
    </>
  );
}

/** Returns the error of a field, or of an item of a list or map, of a runtime. */
function errorsOf(fields: readonly FieldError[], runtime: Runtime) {
  return (name: string) => {
    const at = `run.${runtime}.${name}`;
    const isPart = (path: string) => path.startsWith(`${at}.`) || path.startsWith(`${at}[`);
    return fields.find(({ path }) => path === at || isPart(path))?.detail;
  };
}

interface KindProps {
  isScript: boolean;
  interpreter: readonly string[];
  setKind: (kind: "script" | "command") => void;
  setInterpreter: (words?: string[]) => void;
}

/** The choice between a script and a command. */
function ProgramKind({ isScript, interpreter, setKind, setInterpreter }: KindProps) {
  const { t } = useTranslation();
  return (
    <div className={style.kind}>
      <SegmentedControl
        aria-label={t("submit.kind")}
        value={isScript ? "script" : "command"}
        onChange={(kind) => setKind(kind)}
        data={[
          { value: "script", label: t("submit.script") },
          { value: "command", label: t("submit.command") },
        ]}
      />
      {isScript && <Interpreter value={interpreter} onChange={setInterpreter} />}
    </div>
  );
}

function ProcessFields({ spec, set, fields }: Props) {
  const { t } = useTranslation();
  const process = fieldsOf(spec, "process") ?? {};
  const error = errorsOf(fields, "process");
  const errorOfRun = fields.find(({ path }) => path === "run.process")?.detail;
  const isScript = process.script != null;
  const at = (name: string) => ["run", "process", name];
  return (
    <>
      <ProgramKind
        isScript={isScript}
        interpreter={wordsOf(process.interpreter)}
        setKind={(kind) => set(["run", "process"], withProgram(process, kind))}
        setInterpreter={(words) => set(at("interpreter"), words)}
      />
      {isScript ? (
        <Script
          value={textOf(process.script)}
          onChange={(script) => set(at("script"), script)}
          error={error("script") ?? errorOfRun}
        />
      ) : (
        <CommandLine
          label={t("submit.command")}
          description={t("submit.commandHint")}
          words={wordsOf(process.command)}
          onChange={(words) => set(at("command"), words)}
          error={error("command") ?? errorOfRun}
        />
      )}
      <SandboxFields spec={spec} set={set} fields={fields} />
    </>
  );
}

/** Choice of the network of a sandbox that sets none: the one of its level. */
const NETWORK_OF_LEVEL = "default";

/** The sandbox of a process. */
function SandboxFields({ spec, set, fields }: Props) {
  const { t } = useTranslation();
  const process = fieldsOf(spec, "process") ?? {};
  const level = levelOf(process);
  const isSandboxed = level !== null && level !== "none";
  const network = networkOf(process);
  const error = errorsOf(fields, "process");
  const errorOfSandbox = fields.find(({ path }) => path === "run.process.sandbox")?.detail;
  const at = (path: readonly string[]) => ["run", "process", ...path];
  return (
    <div className={isSandboxed ? style.pair : undefined}>
      <Select
        label={t("submit.sandbox")}
        description={level !== null && t(`sandboxLevelHint.${level}`)}
        inputWrapperOrder={["label", "input", "description", "error"]}
        data={SANDBOX_LEVELS.map((value) => ({ value, label: t(`sandboxLevel.${value}`) }))}
        value={level}
        onChange={(next) => {
          if (next === null) return;
          const { path, value } = levelChange(process, next);
          set(at(path), value);
        }}
        allowDeselect={false}
        error={isSandboxed ? (error("sandbox.level") ?? errorOfSandbox) : error("sandbox")}
        data-testid="sandbox"
      />
      {isSandboxed && (
        <Select
          label={t("submit.network")}
          description={t(`sandboxNetworkHint.${network ?? defaultNetwork(level)}`)}
          inputWrapperOrder={["label", "input", "description", "error"]}
          data={[
            {
              value: NETWORK_OF_LEVEL,
              label: t("submit.defaultNetwork", { network: t(`sandboxNetwork.${defaultNetwork(level)}`) }),
            },
            ...SANDBOX_NETWORKS.map((value) => ({ value, label: t(`sandboxNetwork.${value}`) })),
          ]}
          value={network ?? NETWORK_OF_LEVEL}
          onChange={(value) =>
            set(at(["sandbox", "network"]), value === NETWORK_OF_LEVEL ? undefined : value)
          }
          allowDeselect={false}
          error={error("sandbox.network")}
          data-testid="sandbox-network"
        />
      )}
    </div>
  );
}

function ContainerFields({ spec, set, fields }: Props) {
  const { t } = useTranslation();
  const container = fieldsOf(spec, "container") ?? {};
  const error = errorsOf(fields, "container");
  const isScript = container.script != null;
  const at = (name: string) => ["run", "container", name];
  const setWords = (name: string, words: string[]) => set(at(name), words.length > 0 ? words : undefined);
  return (
    <>
      <div className={style.image}>
        <TextInput
          label={t("submit.image")}
          placeholder="alpine:3.20"
          classNames={{ input: style.code }}
          spellCheck={false}
          withAsterisk
          value={textOf(container.image)}
          onChange={(event) => set(at("image"), event.currentTarget.value)}
          error={textOf(container.image) === "" ? t("submit.required") : error("image")}
          data-testid="image"
        />
        <Select
          label={t("submit.pull")}
          data={PULL_POLICIES.map((value) => ({ value, label: t(`pullPolicy.${value}`) }))}
          value={container.pull ?? DEFAULT_PULL}
          onChange={(value) => set(at("pull"), value === DEFAULT_PULL ? undefined : value)}
          allowDeselect={false}
          error={error("pull")}
        />
      </div>
      <ProgramKind
        isScript={isScript}
        interpreter={wordsOf(container.interpreter)}
        setKind={(kind) => set(["run", "container"], withContainerProgram(container, kind))}
        setInterpreter={(words) => set(at("interpreter"), words)}
      />
      {isScript ? (
        <Script
          value={textOf(container.script)}
          onChange={(script) => set(at("script"), script)}
          error={error("script") ?? error("interpreter")}
        />
      ) : (
        <>
          <CommandLine
            label={t("submit.command")}
            description={t("submit.containerCommandHint")}
            placeholder={t("submit.ofImage")}
            words={wordsOf(container.command)}
            onChange={(words) => setWords("command", words)}
            error={error("command")}
          />
          <CommandLine
            label={t("submit.entrypoint")}
            isLabelled
            placeholder={t("submit.ofImage")}
            words={wordsOf(container.entrypoint)}
            onChange={(words) => setWords("entrypoint", words)}
            error={error("entrypoint")}
          />
        </>
      )}
    </>
  );
}

const DEFAULT_PULL: PullPolicy = "if_missing";
const NETWORKS = ["bridge", "none", "host"];

/** Further fields of a container, as an item of an accordion. */
export function ContainerItem({ spec, set, fields }: Props) {
  const { t } = useTranslation();
  const container = fieldsOf(spec, "container");
  if (!container) return null;
  const error = errorsOf(fields, "container");
  const at = (name: string) => ["run", "container", name];
  const setText = (name: string, value: string) => set(at(name), value.trim() === "" ? undefined : value);
  return (
    <Accordion.Item value="container">
      <Accordion.Control>{t("submit.containerOptions")}</Accordion.Control>
      <Accordion.Panel>
        <div className={style.pair}>
          <TextInput
            label={t("submit.workingDirectory")}
            placeholder={t("submit.ofImage")}
            value={textOf(container.working_directory)}
            onChange={(event) => setText("working_directory", event.currentTarget.value)}
            error={error("working_directory")}
          />
          <TextInput
            label={t("submit.user")}
            placeholder={t("submit.ofImage")}
            value={textOf(container.user)}
            onChange={(event) => setText("user", event.currentTarget.value)}
            error={error("user")}
          />
        </div>
        <div className={style.pair}>
          <Autocomplete
            label={t("submit.network")}
            placeholder="bridge"
            data={NETWORKS}
            value={textOf(container.network)}
            onChange={(value) => setText("network", value)}
            error={error("network")}
          />
          <Switch
            className={style.switch}
            label={t("submit.readOnly")}
            description={t("submit.readOnlyHint")}
            checked={container.read_only === true}
            onChange={(event) => set(at("read_only"), event.currentTarget.checked || undefined)}
          />
        </div>
      </Accordion.Panel>
    </Accordion.Item>
  );
}

function HttpFields({ spec, set, fields }: Props) {
  const { t } = useTranslation();
  const http = fieldsOf(spec, "http") ?? {};
  const error = errorsOf(fields, "http");
  const at = (name: string) => ["run", "http", name];
  const setText = (name: string, value: string) => set(at(name), value.trim() === "" ? undefined : value);
  const base = defaultMethod(http);
  const method = METHODS.find((each) => each === http.method) ?? base;
  const setMethod = (next: HttpMethod | null) => set(at("method"), next === base ? undefined : next);
  return (
    <>
      <div className={style.request}>
        <Select
          label={t("submit.method")}
          data={METHODS}
          value={method}
          onChange={(value) => setMethod(value)}
          allowDeselect={false}
          error={error("method")}
        />
        <TextInput
          label="URL"
          placeholder="https://example.com/api"
          classNames={{ input: style.code }}
          spellCheck={false}
          withAsterisk
          value={textOf(http.url)}
          onChange={(event) => set(at("url"), event.currentTarget.value)}
          error={textOf(http.url) === "" ? t("submit.required") : error("url")}
          data-testid="url"
        />
      </div>
      <KeyValueField
        label={t("submit.headers")}
        placeholder="Accept: application/json"
        separator=": "
        value={http.headers ?? {}}
        onChange={(value) => set(at("headers"), value)}
        error={error("headers")}
      />
      <Textarea
        label={t("submit.body")}
        description={t("submit.variablesHint", { example: "${BELFRY_JOB_ID}" })}
        inputWrapperOrder={["label", "input", "description", "error"]}
        classNames={{ input: style.code }}
        autosize
        minRows={3}
        maxRows={18}
        spellCheck={false}
        value={textOf(http.body)}
        onChange={(event) => setText("body", event.currentTarget.value)}
        error={error("body")}
      />
      <div className={style.pair}>
        <ListField
          label={t("submit.successStatus")}
          placeholder="2xx"
          value={wordsOf(http.success_status)}
          split={splitList}
          onChange={(codes) => set(at("success_status"), codes)}
          error={error("success_status")}
        />
        <TextInput
          label={t("submit.requestTimeout")}
          placeholder="5m"
          value={textOf(http.request_timeout)}
          onChange={(event) => setText("request_timeout", event.currentTarget.value)}
          error={error("request_timeout")}
        />
      </div>
      <TextInput
        label={t("submit.successIf")}
        placeholder="body.code == 0"
        description={t("submit.successIfHint")}
        inputWrapperOrder={["label", "input", "description", "error"]}
        classNames={{ input: style.code }}
        spellCheck={false}
        value={textOf(http.success_if)}
        onChange={(event) => setText("success_if", event.currentTarget.value)}
        error={error("success_if")}
      />
    </>
  );
}

/** The environment variables of a process or container. */
export function EnvField({ spec, set, fields }: Props) {
  const { t } = useTranslation();
  const runtime = runtimeOf(spec);
  if (runtime !== "process" && runtime !== "container") return null;
  return (
    <KeyValueField
      label={t("submit.env")}
      placeholder="REGION=eu-1"
      value={fieldsOf(spec, runtime)?.env ?? {}}
      onChange={(value) => set(["run", runtime, "env"], value)}
      error={errorsOf(fields, runtime)("env")}
    />
  );
}
