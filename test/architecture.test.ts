import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { expect, test } from 'vitest'
import { bugs } from '../scripts/bugs.ts'

const root = resolve('src')
const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'))

/** A file's part: its folder, or the file itself where it stands at the top. */
const partOf = (file: string) => file.split('/')[0] ?? file

/** Imports of ours in a file: the part that each leads to. */
function importsOf(file: string): { part: string; specifier: string }[] {
  const text = readFileSync(join(root, file), 'utf8')
  const specifiers = [...text.matchAll(/(?:from|import\()\s*'([^']+)'/g)].map((match) => match[1] ?? '')
  return specifiers
    .map((specifier) => (specifier === '#inboxili' ? './src/inboxili/client.ts' : specifier))
    .filter((specifier) => specifier.startsWith('.'))
    .map((specifier) => {
      const target = specifier.startsWith('./src/') ? resolve(specifier) : resolve(root, dirname(file), specifier)
      return { part: partOf(relative(root, target)), specifier }
    })
}

const base = ['db.ts', 'log.ts', 'fault-points.ts', 'version.ts']
/** Which parts each part may import, beside itself. */
const allowed: Record<string, readonly string[]> = {
  providers: [],
  inboxili: [],
  'db.ts': [],
  'log.ts': [],
  'fault-points.ts': [],
  'problem.ts': [],
  'migrate.ts': ['db.ts'],
  'version.ts': [],
  'http-server.ts': [],
  'metrics-port.ts': [],
  'tracing.ts': base,
  'settings.ts': ['fault-points.ts'],
  'limits.ts': [],
  'config.ts': ['providers', 'sends', 'settings.ts', 'limits.ts'],
  'start-up.ts': [...base, 'config.ts', 'migrate.ts', 'settings.ts'],
  sends: [...base, 'inboxili'],
  events: [...base, 'sends', 'providers', 'config.ts', 'problem.ts'],
  'follow-ups': [...base, 'sends', 'providers', 'config.ts'],
  // Of the events the replays, and the types of what they answer and of the fingerprints; of the follow-ups the type of a forecast.
  ops: [...base, 'sends', 'problem.ts', 'events', 'follow-ups', 'config.ts', 'providers', 'limits.ts'],
  sandbox: ['providers'],
  'app.ts': [...base, 'events', 'ops', 'problem.ts'],
  // Loads the sandbox only where one runs.
  'development.ts': ['config.ts', 'ops', 'sandbox', 'settings.ts'],
  'sweeps.ts': [...base, 'events', 'follow-ups', 'ops', 'sends', 'settings.ts'],
  'serve.ts': [
    ...base,
    'app.ts',
    'development.ts',
    'events',
    'follow-ups',
    'http-server.ts',
    'ops',
    'providers',
    'settings.ts',
    'start-up.ts',
    'tracing.ts',
  ],
  'work.ts': [
    ...base,
    'sweeps.ts',
    'events',
    'follow-ups',
    'ops',
    'sends',
    'inboxili',
    'settings.ts',
    'start-up.ts',
    'metrics-port.ts',
    'tracing.ts',
  ],
  'cli.ts': [...base, 'cli', 'config.ts', 'settings.ts'],
  cli: [
    ...base,
    'config.ts',
    'settings.ts',
    'serve.ts',
    'work.ts',
    'sweeps.ts',
    'migrate.ts',
    'start-up.ts',
    'follow-ups',
    'ops',
    'providers',
    'sandbox',
    'cli.ts',
    'events',
    'sends',
  ],
}

test('imports point one way, from the command line down to the database', () => {
  const wrong = files.flatMap((file) =>
    importsOf(file)
      .filter(({ part }) => part !== partOf(file) && !(allowed[partOf(file)] ?? []).includes(part))
      .map(({ specifier }) => `${file} imports ${specifier}`),
  )

  expect(wrong).toEqual([])
  expect(files.map(partOf).filter((part) => allowed[part] === undefined)).toEqual([])
})

test('Express stays at the HTTP edge, the job library in one file, and the environment in the configuration', () => {
  const using = (pattern: RegExp) => files.filter((file) => pattern.test(readFileSync(join(root, file), 'utf8'))).sort()

  const atTheEdge =
    /^(app|problem)\.ts$|^events\/routes\.ts$|^ops\/(api|access|route|routes|docs-page|.*-routes)\.ts$|^ops\/page\//
  expect(using(/from 'express(-rate-limit)?'/).filter((file) => !atTheEdge.test(file))).toEqual([])
  expect(using(/from 'pg-boss'/)).toEqual(['follow-ups/queue.ts'])
  expect(using(/process\.env/).filter((file) => !file.startsWith('cli'))).toEqual(['config.ts', 'settings.ts'])
  expect(using(/timingSafeEqual/).filter((file) => file.startsWith('providers/'))).toEqual(['providers/signature.ts'])
})

test('no file but the sends moves a send', () => {
  const writers = files.filter((file) =>
    /update email_sends|insert into email_sends/.test(readFileSync(join(root, file), 'utf8')),
  )

  expect(writers.every((file) => file.startsWith('sends/'))).toBe(true)
  expect(writers.length).toBeGreaterThan(0)
})

test.each(bugs)('a bug to plant finds its place once: $name', ({ changes }) => {
  for (const [file, text] of changes) expect(readFileSync(file, 'utf8').split(text).length - 1, `${file}: ${text}`).toBe(1)
})
