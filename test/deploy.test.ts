import { readFileSync } from 'node:fs'
import { afterAll, expect, test, vi } from 'vitest'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { testDatabase } from './support/database.ts'
import { apiKey, postPayment, quick, start, until } from './support/processes.ts'

vi.setConfig({ testTimeout: 90_000 })

const read = (path: string) => readFileSync(path, 'utf8')

/** YAML as far as the files here go: maps and lists by indentation, plain, quoted and folded scalars. Anything else throws. */
function readYaml(text: string): unknown {
  const lines = text
    .split('\n')
    .filter((line) => !/^\s*(#|$)/.test(line))
    .map((line) => ({ indent: line.search(/\S/), text: line.trim() }))
  const scalar = (given: string): string | number => {
    const quoted = /^'([^']*)'$/.exec(given)
    if (quoted) return quoted[1] ?? ''
    if (/^[[{&*!|>'"%@`]|: | #|:$/.test(given)) throw new Error(`not a plain scalar: ${given}`)
    return /^\d+$/.test(given) ? Number(given) : given
  }
  const block = (indent: number): unknown => {
    const isList = lines[0]?.text.startsWith('- ')
    const list: unknown[] = []
    const map: Record<string, unknown> = {}
    while (lines[0] !== undefined && lines[0].indent === indent) {
      const line = lines[0]
      if (isList !== line.text.startsWith('- ')) throw new Error(`list and map mixed at ${line.text}`)
      if (isList) {
        // What follows the dash begins a block of its own, two further in.
        const rest = line.text.slice(2)
        if (/^[\w-]+:( |$)/.test(rest)) {
          lines[0] = { indent: indent + 2, text: rest }
          list.push(block(indent + 2))
        } else {
          lines.shift()
          list.push(scalar(rest))
        }
        continue
      }
      const [, name, value] = /^([\w-]+):(?: (.*))?$/.exec(line.text) ?? []
      if (name === undefined || name in map) throw new Error(`no key, or one that is there already: ${line.text}`)
      lines.shift()
      if (value === '>-') {
        const folded: string[] = []
        while ((lines[0]?.indent ?? 0) > indent) folded.push(lines.shift()?.text ?? '')
        map[name] = folded.join(' ')
      } else map[name] = value === undefined ? block(lines[0]?.indent ?? 0) : scalar(value)
    }
    if ((lines[0]?.indent ?? 0) > indent) throw new Error(`indented too far: ${lines[0]?.text}`)
    return isList ? list : map
  }
  const read = block(0)
  if (lines.length > 0) throw new Error(`not read: ${lines[0]?.text}`)
  return read
}

interface AlertRule {
  alert: string
  expr: string
  labels: { severity: string }
  annotations: { summary: string; runbook: string }
}
const rules = (
  readYaml(read('deploy/prometheus/alerts.yml')) as { groups: { name: string; rules: AlertRule[] }[] }
).groups.flatMap((group) => group.rules)
interface Panel {
  title: string
  gridPos: { x: number; y: number; w: number; h: number }
  targets?: { expr: string; datasource: { uid: string } }[]
}
const dashboard = JSON.parse(read('deploy/grafana/oncehook.json')) as {
  panels: Panel[]
  templating: { list: { name: string; type: string }[] }
}
const expressions = [
  ...rules.map(({ expr }) => expr),
  ...dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
]

const functions = ['sum', 'max', 'min', 'rate', 'increase', 'delta', 'absent', 'vector', 'histogram_quantile']
const words = ['by', 'and', 'or']

/** The selectors of an expression: metric, and its matchers. Throws at anything that PromQL as used here doesn't have. */
function selectorsOf(expr: string): { metric: string; matchers: [label: string, operator: string, value: string][] }[] {
  const tokens: string[] =
    expr.match(/"[^"]*"|\$?[a-zA-Z_][\w]*|\d+(\.\d+)?[smhd]?|=~|!~|!=|==|>=|<=|[-+*/(){}[\],<>=]|\S/g) ?? []
  const open: string[] = []
  const closing: Record<string, string> = { ')': '(', '}': '{', ']': '[' }
  const found: ReturnType<typeof selectorsOf> = []
  for (const [index, token] of tokens.entries()) {
    const next = tokens[index + 1] ?? ''
    if ('({['.includes(token)) open.push(token)
    else if (closing[token] !== undefined) {
      if (open.pop() !== closing[token]) throw new Error(`unbalanced: ${expr}`)
    } else if (/^[a-zA-Z_]/.test(token)) {
      const isLabel = open.at(-1) === '{' || (open.at(-1) === '(' && isOfBy(tokens, index))
      if (isLabel) continue
      if (words.includes(token)) continue
      if (next === '(' || next === 'by') {
        if (!functions.includes(token)) throw new Error(`no such function: ${token}`)
        continue
      }
      const to = next === '{' ? tokens.indexOf('}', index) : index
      const inside = tokens.slice(index + 2, to).join('')
      const matchers = [...inside.matchAll(/([a-z_]+)(=~|!~|!=|=)"([^"]*)"/g)].map(
        ([, label = '', operator = '', value = '']): [string, string, string] => [label, operator, value],
      )
      if (next === '{' && matchers.map((parts) => `${parts[0]}${parts[1]}"${parts[2]}"`).join() !== inside)
        throw new Error(`not read: {${inside}}`)
      found.push({ metric: token, matchers })
    } else if (!/^("[^"]*"|\d+(\.\d+)?[smhd]?|\$__rate_interval|=~|!~|!=|==|>=|<=|[-+*/,<>=])$/.test(token)) {
      throw new Error(`not read: ${token} in ${expr}`)
    }
  }
  if (open.length > 0) throw new Error(`unbalanced: ${expr}`)
  return found
}

/** Whether a name stands in the list of a `by (…)`. */
function isOfBy(tokens: readonly string[], index: number): boolean {
  let at = index
  while (at >= 0 && tokens[at] !== '(') at -= 1
  return tokens[at - 1] === 'by'
}

// --- What real processes tell ----------------------------------------------------------------------------------------

const { url: databaseUrl } = await testDatabase()
const sandbox = await startInboxiliSandbox({ apiKey, sendsPerMinute: 1_000_000 })
afterAll(() => sandbox.close())
const environment = { ...quick, DATABASE_URL: databaseUrl, INBOXILI_BASE_URL: sandbox.url, ONCEHOOK_WORKER_METRICS_PORT: '0' }
const [serve, worker] = await Promise.all([start('serve', environment), start('worker', environment)])

/** Each sample of both processes: its name and labels. */
async function samples() {
  await postPayment(serve.url, 'deploy1')
  await postPayment(serve.url, 'deploy2', { secret: 'wrong' })
  const port = worker.log().find(({ msg }) => msg === 'metrics are served')?.port
  const texts = () =>
    Promise.all([serve.url, `http://127.0.0.1:${port}`].map(async (url) => (await fetch(`${url}/metrics`)).text()))
  const text = await until(async () => {
    const told = (await texts()).join('\n')
    return (
      /email_calls_total\{outcome="accepted"\} 1/.test(told) &&
      /last_sweep_seconds \d/.test(told) &&
      /_refusals_total\{/.test(told) &&
      told
    )
  }, 'an email is sent, a sweep has been seen, and a refusal is explained')
  return [...text.matchAll(/^([a-z_0-9]+)(?:\{(.*)\})? \S+$/gm)].map(([, name = '', labels = '']) => ({
    name,
    labels: Object.fromEntries([...labels.matchAll(/([a-z_]+)="([^"]*)"/g)].map(([, label = '', value = '']) => [label, value])),
  }))
}

/** Labels with a value for each thing that there may be, whether it has happened or not. */
const complete = ['status', 'outcome', 'result', 'what', 'kind', 'grade']

test('every expression of the dashboard and the alerts reads metrics, labels and values that the processes tell', async () => {
  const told = await samples()

  const wrong = expressions.flatMap((expr) =>
    selectorsOf(expr).flatMap(({ metric, matchers }) => {
      const same = told.filter(({ name }) => name === metric)
      if (same.length === 0) return [`${metric} is told by no process`]
      return matchers.flatMap(([label, operator, value]) => {
        if (!same.some(({ labels }) => label in labels)) return [`${metric} has no label ${label}`]
        if (!complete.includes(label)) return []
        const values = operator.includes('~') ? value.split('|') : [value]
        return values
          .filter((one) => !same.some(({ labels }) => labels[label] === one))
          .map((one) => `${metric}: no ${label} ${one}`)
      })
    }),
  )

  expect(wrong).toEqual([])
  expect(expressions.length).toBeGreaterThan(50)
})

test('the results that they read are those that docs/operations.md names', () => {
  const row =
    read('docs/operations.md')
      .split('\n')
      .find((line) => line.startsWith('| `oncehook_webhook_answers_total`')) ?? ''
  const results = expressions
    .flatMap(selectorsOf)
    .flatMap(({ matchers }) => matchers.filter(([label]) => label === 'result').flatMap(([, , value]) => value.split('|')))

  expect([...new Set(results)].filter((result) => !row.includes(`\`${result}\``))).toEqual([])
})

test('the dashboard shows each thing once, beside one another, from a data source that is chosen', () => {
  const { panels, templating } = dashboard
  const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
    Array.from({ length: w * h }, (_, cell) => `${x + (cell % w)} ${y + Math.floor(cell / w)}`),
  )

  expect(templating.list).toMatchObject([{ name: 'datasource', type: 'datasource' }])
  expect(new Set(cells).size).toBe(cells.length)
  expect(panels.every(({ gridPos: { x, w } }) => x + w <= 24)).toBe(true)
  for (const { targets = [] } of panels)
    for (const { datasource } of targets) expect(datasource.uid).toMatch(/^\$\{datasource\}$/)
})

test('each alert is named for what there is to do, says how bad it is, and leads to a part of the manual that names it', () => {
  const operations = read('docs/operations.md')
  const anchors = [...operations.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  )
  const documented = [...operations.matchAll(/^\| `(Oncehook\w+)` \| (\w+) \|/gm)].map(([, name, severity]) => [name, severity])

  expect(documented).toEqual(rules.map(({ alert, labels }) => [alert, labels.severity]))
  for (const { alert, labels, annotations } of rules) {
    expect(['attention', 'problem']).toContain(labels.severity)
    expect(annotations.summary, alert).toMatch(/[.?]$/)
    const [file, anchor] = annotations.runbook.split('#')
    expect([file, anchors.includes(anchor ?? '')], alert).toEqual(['docs/operations.md', true])
  }
})

test('the example for Prometheus reads the alerts, and both kinds of processes', () => {
  expect(readYaml(read('deploy/prometheus/prometheus.yml'))).toMatchObject({
    rule_files: ['alerts.yml'],
    scrape_configs: [
      { job_name: 'oncehook-serve', static_configs: [{ targets: ['serve:3000'] }] },
      { job_name: 'oncehook-worker', static_configs: [{ targets: ['worker:9464'] }] },
    ],
  })
})
