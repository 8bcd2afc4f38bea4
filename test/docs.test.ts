import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { afterEach, expect, test, vi } from 'vitest'
import { z } from 'zod'
import { providerDocs, sourceLine } from '../scripts/provider-docs.ts'
import { program } from '../src/cli.ts'
import { defineConfig, env, key, period, readConfig } from '../src/config.ts'
import { createMetrics } from '../src/ops/metrics.ts'
import { otherPaths } from '../src/ops/other-paths.ts'
import { eventLabels, sendLabels } from '../src/ops/words.ts'
import { createWorkerMetrics } from '../src/ops/worker-metrics.ts'
import { problemCodes } from '../src/problem.ts'
import { providers } from '../src/providers/registry.ts'
import { readSettings } from '../src/settings.ts'
import { declaredRoutes } from './support/declared.ts'
import { setups } from './support/provider-setups.ts'

const read = (path: string) => readFileSync(path, 'utf8')
const documents = new Map(
  [
    'README.md',
    'examples/README.md',
    ...readdirSync('docs', { recursive: true, encoding: 'utf8' }).map((file) => join('docs', file)),
  ]
    .filter((file) => file.endsWith('.md'))
    .map((file) => [file, read(file)]),
)
const configuration = read('docs/configuration.md')
const operations = read('docs/operations.md')
const api = read('docs/api.md')

/** What stands under a heading, up to the next one of the same or a higher level. */
function section(text: string, heading: string): string {
  const level = heading.split(' ', 1)[0]?.length ?? 1
  const rest = text.split(`\n${heading}\n`)[1] ?? ''
  return rest.split(new RegExp(`\n#{1,${level}} `))[0] ?? ''
}

/** The cells of each row of a table whose first cell is code. */
const rowsOf = (text: string) =>
  [...text.matchAll(/^\| (`.*) \|$/gm)].map(([, row = '']) => row.split('|').map((cell) => cell.trim()))
const uncoded = (cell = '') => cell.replace(/^`(.*)`$/, '$1')
const firstCells = (text: string) => rowsOf(text).map(([first]) => uncoded(first))

afterEach(() => vi.unstubAllEnvs())

// --- Variables -------------------------------------------------------------------------------------------------------

const variables = rowsOf(section(configuration, '## Variables')).map(([name, fallback, range, file]) => ({
  name: uncoded(name),
  fallback: fallback === 'none' ? undefined : uncoded(fallback),
  range: /^(\d+)–(\d+)$/.exec(range ?? '')?.slice(1) ?? [],
  hasFile: file === 'yes',
}))

/** The names that the settings are read by. */
function namesRead(): string[] {
  const names = new Set<string>()
  readSettings(new Proxy({}, { get: (_target, name) => void names.add(String(name)) }) as NodeJS.ProcessEnv)
  return [...names]
}

test('every variable that the settings read is in docs/configuration.md, and no other', () => {
  const documented = variables.flatMap(({ name, hasFile }) => [name, ...(hasFile ? [`${name}_FILE`] : [])])

  expect(documented.sort()).toEqual(namesRead().sort())
})

test('.env.example has the same variables with the same defaults, but for NODE_ENV', () => {
  const example = Object.fromEntries(
    [...read('.env.example').matchAll(/^([A-Z_]+)=(.*)$/gm)].map(([, name, value]) => [name, value]),
  )
  const documented = Object.fromEntries(
    variables.filter(({ name }) => name !== 'NODE_ENV').map(({ name, fallback = '' }) => [name, fallback]),
  )

  expect(example).toEqual(documented)
})

test('a variable that is set to its documented default changes nothing', () => {
  const plain = readSettings({})

  for (const { name, fallback } of variables) expect(readSettings({ [name]: fallback }), name).toEqual(plain)
  expect(variables.filter(({ fallback }) => fallback === undefined)).toHaveLength(
    Object.values(plain).filter((value) => value === undefined).length,
  )
})

test('the documented range of each number is taken, and nothing beyond it', () => {
  const wide = { ONCEHOOK_CALL_TIMEOUT_MS: '50', SHUTDOWN_GRACE_MS: '600000' }
  const settings = (name: string, value: number) => () => readSettings({ ...wide, [name]: String(value) })
  const numbers = variables.filter(({ fallback }) => fallback !== undefined && /^\d+$/.test(fallback))

  for (const { name, range } of numbers) {
    const [least = Number.NaN, most = Number.NaN] = range.map(Number)
    expect(settings(name, least), name).not.toThrow()
    expect(settings(name, most), name).not.toThrow()
    expect(settings(name, least - 1), name).toThrow(name)
    expect(settings(name, most + 1), name).toThrow(name)
  }
})

test('.env.example names the secrets of the sample configuration', () => {
  const inExample = [...read('.env.example').matchAll(/^# ([A-Z_]+)=$/gm)].map(([, name]) => name)
  const inSample = [...read('oncehook.config.ts').matchAll(/env\.list\('([A-Z_]+)'\)/g)].map(([, name]) => name)

  expect(inExample.sort()).toEqual(inSample.sort())
})

test('the configuration files that the documents show can be used', () => {
  const shown = [...documents.values()].flatMap((text) => [...text.matchAll(/```ts\nimport .* from 'oncehook'\n([\s\S]*?)```/g)])
  for (const name of ['STRIPE', 'INBOXILI']) vi.stubEnv(`${name}_WEBHOOK_SECRETS`, 'a secret of this test')

  for (const [, text = ''] of shown) {
    // What we publish ourselves, run with the names that it imports.
    const run = new Function('defineConfig', 'env', 'key', 'period', text.replace('export default', 'return'))
    expect(readConfig(run(defineConfig, env, key, period)).rules).toHaveLength(1)
  }
  expect(shown.length).toBeGreaterThanOrEqual(2)
})

// --- Providers -------------------------------------------------------------------------------------------------------

test('docs/providers.md says what the code says', () => {
  const page = read('docs/providers.md')

  expect(page === providerDocs(page) || 'run npm run docs').toBe(true)
})

test.each(setups)('the line that docs/providers.md shows for $title can be used', ({ definition, code, secret }) => {
  const line = sourceLine(definition, code)
  for (const [, variable = ''] of line.matchAll(/env\.list\('([A-Z_]+)'\)/g)) vi.stubEnv(variable, secret)

  // What we publish ourselves, run with the names that it uses.
  const sources = new Function('env', 'fetchIt', `return ({${line}})`)(env, () => undefined)
  expect(readConfig({ sources }).sources.get(definition.name)?.provider.name).toBe(definition.name)
  expect(section(read('docs/providers.md'), `## ${definition.name}`)).toContain(line)
})

test.each(setups)('docs/providers.md speaks of each option of $title', ({ definition }) => {
  const { properties = {} } = z.toJSONSchema(definition.options, { io: 'input', unrepresentable: 'any' })
  const text = section(read('docs/providers.md'), `## ${definition.name}`)

  expect(Object.keys(properties).filter((option) => !new RegExp(`\\b${option}\\b`).test(text))).toEqual([])
})

test('README.md names every provider', () => {
  const text = read('README.md').replace(/\s+/g, ' ').toLowerCase()

  expect([...providers.values()].map(({ title }) => title).filter((title) => !text.includes(title.toLowerCase()))).toEqual([])
})

// --- API, metrics, statuses, sandbox ---------------------------------------------------------------------------------

test('docs/api.md has every problem code', () => {
  expect(firstCells(section(api, '## Problems')).sort()).toEqual([...problemCodes].sort())
})

/** A path as the document writes it. */
const written = (path: string) =>
  path.replace(/:(\w+)|\{(\w+)\}/g, (_hole, one?: string, other?: string) =>
    (one ?? other) === 'source' ? 'NAME' : String(one ?? other).toUpperCase(),
  )

test('docs/api.md has every route that is declared, and no other', () => {
  const others = Object.entries(otherPaths).flatMap(([path, item]) =>
    Object.keys(item)
      // The answer to a challenge is a part of how a webhook is received.
      .filter((method) => !(method === 'get' && path.startsWith('/webhooks/')))
      .map((method) => ({ method, path })),
  )
  const declared = [...declaredRoutes, ...others].map(({ method, path }) => `${method.toUpperCase()} ${written(path)}`)
  const headings = [...api.matchAll(/^## (.*)$/gm)].flatMap(([, heading = '']) => heading.match(/[A-Z]+ \/\S*[a-zA-Z]/g) ?? [])

  expect(headings.sort()).toEqual(declared.sort())
})

test('docs/api.md names the roles and the parameters of every route', () => {
  const missing = declaredRoutes.flatMap((route) => {
    const text = section(api, `## ${route.method.toUpperCase()} ${written(route.path)}`)
    const query = route.query && (z.toJSONSchema(route.query, { io: 'input', unrepresentable: 'any' }).properties ?? {})
    const named = [...Object.keys(query ?? {}), ...(route.roles.length === 3 ? [] : route.roles)]
    return named.filter((name) => !text.includes(`\`${name}\``)).map((name) => `${route.id}: ${name}`)
  })

  expect(missing).toEqual([])
})

test('docs/operations.md has every metric, and no other', async () => {
  const namesOf = (text: string) => [...text.matchAll(/^# HELP (\S+)/gm)].map(([, name]) => name)
  const ofServe = namesOf(await createMetrics().text({ query: async () => ({ rows: [] }) } as never)) // it only looks at the rows
  const ofWorker = namesOf(await createWorkerMetrics().text()).filter((name) => !ofServe.includes(name))

  expect(firstCells(operations).filter((name) => name.startsWith('oncehook_'))).toEqual([...ofServe, ...ofWorker])
})

/** The last argument of each call of a log: its words, of which a condition may choose. */
function wordsLogged(text: string): string[] {
  return [...text.matchAll(/\blog(?:\.(?:debug|info|warn|error|fatal)|\[level\])\(/g)].flatMap(({ 0: call, index }) => {
    let depth = 1
    let last = ''
    for (const [piece] of text.slice(index + call.length).matchAll(/'[^'\n]*'|`[^`]*`|[\s\S]/g)) {
      if ('([{'.includes(piece)) depth += 1
      if (')]}'.includes(piece)) depth -= 1
      if (depth === 0) break
      if (piece === ',' && depth === 1) last = ''
      else last += piece
    }
    return depth === 0 ? [...last.matchAll(/'([^'\n]+)'/g)].map(([, words = '']) => words) : []
  })
}

test('docs/operations.md has every line that is logged', () => {
  const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'))
  const logged = new Set(files.flatMap((file) => wordsLogged(read(join('src', file)))))
  const told = section(operations, '## Logs')

  expect([...logged].filter((words) => !told.includes(`\`${words}\``))).toEqual([])
  expect(logged.size).toBeGreaterThan(35)
})

test('docs/operations.md says of every status what to do', () => {
  expect(firstCells(section(operations, '### Events')).sort()).toEqual(Object.keys(eventLabels).sort())
  expect(firstCells(section(operations, '### Sends')).sort()).toEqual(Object.keys(sendLabels).sort())
})

test('docs/operations.md has every control route of the sandbox', () => {
  const routes = [...read('src/sandbox/inboxili/control.ts').matchAll(/'([A-Z]+ \/_sandbox\/[^']*)'/g)].map(([, route]) => route)

  expect(firstCells(section(operations, '## The sandbox'))).toEqual(routes)
})

// --- Links and commands ----------------------------------------------------------------------------------------------

/** The anchors of a document, as GitHub makes them of its headings. */
const anchorsOf = (text: string) =>
  [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  )

test('every relative link leads to a file, and to a heading in it', () => {
  const broken = [...documents].flatMap(([file, text]) =>
    [...text.matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)/g)]
      .filter(([, path = '', anchor]) => {
        const target = path === '' ? file : join(dirname(file), path)
        return !existsSync(target) || (anchor !== undefined && !anchorsOf(read(target)).includes(anchor))
      })
      .map(([link]) => `${file}: ${link}`),
  )

  expect(broken).toEqual([])
})

/** All code of the documents: fenced and inline. */
const codeOf = (text: string) =>
  [...text.matchAll(/```[a-z]*\n([\s\S]*?)```|`([^`\n]+)`/g)].map(([, block, inline]) => block ?? inline ?? '')
const allCode = [...documents].flatMap(([file, text]) => codeOf(text).map((piece) => ({ file, piece })))

test('every npm script that the documents name exists', () => {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }
  const named = allCode.flatMap(({ piece }) =>
    [...piece.matchAll(/\bnpm (?:run ([\w:-]+)|(start|test)\b)/g)].map(([, run, own]) => run ?? own),
  )

  expect(named.filter((name) => scripts[name ?? ''] === undefined)).toEqual([])
  expect(named).toContain('demo')
})

test('every oncehook command that the documents name exists, and docs/cli.md has each', () => {
  const groups = new Map(program().commands.map((verb) => [verb.name(), verb.commands.map((second) => second.name())]))
  const named = allCode.flatMap(({ file, piece }) =>
    [...piece.matchAll(/(?:^|\bnpx )oncehook ([a-z]+(?:-[a-z]+)*)(?: ([a-z]+))?/gm)].map(([text, verb = '', second = '']) => ({
      text: `${file}: ${text}`,
      exists: groups.has(verb) && (second === '' || !groups.get(verb)?.length || groups.get(verb)?.includes(second) === true),
    })),
  )

  expect(named.filter(({ exists }) => !exists).map(({ text }) => text)).toEqual([])
  expect(named.length).toBeGreaterThan(10)
  const commands = [...groups].flatMap(([verb, under]) =>
    under.length === 0 ? [verb] : under.map((second) => `${verb} ${second}`),
  )
  expect(
    firstCells(read('docs/cli.md'))
      .filter((cell) => cell.startsWith('oncehook '))
      .sort(),
  ).toEqual(commands.map((command) => `oncehook ${command}`).sort())
})

test('every promise names tests that exist', () => {
  const text = documents.get('docs/promises.md') ?? ''
  const held = [...text.matchAll(/\[[\w-]+\]\(\.\.\/(test\/[\w-]+\.test\.ts)\) ([CI]-?\d+)/g)]
  const missing = held.filter(([, file = '', id = '']) => !new RegExp(`['\`]([CI]-?\\d+ )*${id}\\b`).test(read(file)))

  expect(missing.map(([whole]) => whole)).toEqual([])
  expect(held.length).toBeGreaterThan(25)
  expect(
    text.split('\n').filter((line) => /^\| [A-Z]/.test(line) && !/\.test\.ts\) [CI]/.test(line) && !line.includes('Held by')),
  ).toEqual([])
})
