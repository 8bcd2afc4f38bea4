import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, expect, test, vi } from 'vitest'
import { env, loadConfig, productionProblems, readConfig } from '../src/config.ts'
import { ConfigError, environmentWithoutEnvFile, loadEnvFile, readSettings } from '../src/settings.ts'

const folder = mkdtempSync(join(tmpdir(), 'oncehook-config-test-'))
afterAll(() => rmSync(folder, { recursive: true }))
afterEach(() => vi.unstubAllEnvs())

const stripe = { provider: 'stripe', secrets: ['whsec_one_two_three'] }
const email = () => null

function problemsOf(work: () => unknown): readonly string[] {
  try {
    work()
  } catch (error) {
    if (error instanceof ConfigError) return error.problems
    throw error
  }
  return []
}

test('a configuration tells everything that is wrong with it at once', () => {
  vi.stubEnv('EMPTY_SECRETS', ' , ')

  const problems = problemsOf(() =>
    readConfig({
      sources: {
        unset: { provider: 'stripe', secrets: env.list('NOWHERE_SECRETS') },
        blank: { provider: 'stripe', secrets: env.list('EMPTY_SECRETS') },
        none: { provider: 'stripe', secrets: [] },
        space: { provider: 'stripe', secrets: ['good_enough', '  '] },
        alien: { provider: 'paypal-ish', secrets: ['x'] },
        option: { ...stripe, colour: 'red' },
        shop: {
          provider: 'generic',
          secrets: ['x'],
          header: 'x-signature',
          algorithm: 'md5',
          encoding: 'hex',
          id: 'id',
          type: 'type',
        },
        svix: { provider: 'svix', secrets: ['whsec_###'] },
        stripe,
      },
      followUps: [
        { source: 'strype', type: 'invoice.paid', email },
        { name: 'twice', source: 'stripe', type: 'invoice.paid', email },
        { name: 'twice', source: 'constructor', type: 'invoice.paid', email },
      ],
    }),
  )

  expect(problems).toEqual([
    'source unset: NOWHERE_SECRETS is not set, so nothing could be verified',
    'source blank: EMPTY_SECRETS is not set, so nothing could be verified',
    'source none: secrets is empty, so nothing could be verified',
    'source space: secrets is empty, so nothing could be verified',
    expect.stringMatching(/^source alien: there is no provider "paypal-ish" \(there are .*stripe/),
    expect.stringMatching(/^source option: .*colour/),
    expect.stringMatching(/^source shop: .*algorithm/),
    'source svix: secret 1 is not in the form that svix gives out',
    'followUps 1: there is no source "strype"',
    'followUps 3: there is no source "constructor"',
    'followUps: 2 rules have the name "twice"',
  ])
})

test.each([
  [
    'C-17 a tolerance that is no number',
    { sources: { stripe: { ...stripe, toleranceSeconds: Number.NaN } } },
    /toleranceSeconds/,
  ],
  ['C-17 a negative tolerance', { sources: { stripe: { ...stripe, toleranceSeconds: -1 } } }, /toleranceSeconds/],
  ['C-17 an empty tolerance', { sources: { stripe: { ...stripe, toleranceSeconds: '' } } }, /toleranceSeconds/],
  [
    'an endless tolerance',
    { sources: { stripe: { ...stripe, toleranceSeconds: Number.POSITIVE_INFINITY } } },
    /toleranceSeconds/,
  ],
  ['a body of no size', { sources: { stripe: { ...stripe, maxBodyBytes: 0 } } }, /maxBodyBytes/],
  ['an unknown mode', { sources: { stripe: { ...stripe, mode: 'both' } } }, /mode/],
  ['a source with a capital letter', { sources: { Stripe: stripe } }, /lower-case/],
  ['secrets that are one text', { sources: { stripe: { ...stripe, secrets: 'whsec_one_two_three' } } }, /secrets/],
  ['an unknown setting', { sources: { stripe }, followups: [] }, /followups/],
  [
    'an unknown setting of a rule',
    { sources: { stripe }, followUps: [{ source: 'stripe', type: 'a', email, policy: 'claim' }] },
    /policy/,
  ],
  ['a rule without a function', { sources: { stripe }, followUps: [{ source: 'stripe', type: 'a', email: 'x' }] }, /function/],
  ['a rule for no type', { sources: { stripe }, followUps: [{ source: 'stripe', type: [], email }] }, /type/],
  ['nothing', undefined, /configuration/],
])('refused at start: %s', (_what, config, problem) => {
  expect(problemsOf(() => readConfig(config)).join('\n')).toMatch(problem)
})

test('a good configuration is taken, with the defaults of the provider', () => {
  const { sources, rules, account } = readConfig({
    sources: { stripe: { ...stripe, toleranceSeconds: 0 }, mail: { provider: 'inboxili', secrets: ['inbx_secret'] } },
    followUps: [
      { source: 'stripe', type: ['a', 'b'], email },
      { source: 'stripe', type: ['a', 'b'], email },
    ],
  })

  expect(sources.get('stripe')).toMatchObject({ mode: 'live', toleranceSeconds: 0, settles: false })
  expect(sources.get('mail')).toMatchObject({ toleranceSeconds: Number.POSITIVE_INFINITY, settles: true })
  expect(rules.map(({ name }) => name)).toEqual(['rule 1 "a, b"', 'rule 2 "a, b"'])
  expect(account).toBe('exclusive')
})

test('secrets come from a comma list or a file; a blank variable gives way to the file, and a missing file is named', () => {
  const path = join(folder, 'secret')
  writeFileSync(path, ' from_file_1, from_file_2 \n')
  vi.stubEnv('IN_FILE_FILE', path)
  vi.stubEnv('BLANK', '  ')
  vi.stubEnv('BLANK_FILE', path)
  vi.stubEnv('BOTH', 'from_variable')
  vi.stubEnv('BOTH_FILE', path)
  vi.stubEnv('GONE_FILE', join(folder, 'gone'))

  expect(env.list('IN_FILE')).toEqual(['from_file_1', 'from_file_2'])
  expect(env.list('BLANK')).toEqual(['from_file_1', 'from_file_2'])
  expect(env.list('BOTH')).toEqual(['from_variable'])
  expect(env.text('IN_FILE')).toBe('from_file_1, from_file_2')
  expect(problemsOf(() => readConfig({ sources: { stripe: { provider: 'stripe', secrets: env.list('GONE') } } }))).toEqual([
    `source stripe: GONE_FILE can't be read: ${join(folder, 'gone')} (ENOENT), so nothing could be verified`,
  ])
  expect(readSettings({ DATABASE_URL_FILE: path, DATABASE_URL: 'postgres://here/db' }).databaseUrl).toBe('postgres://here/db')
})

test('settings have the documented defaults, and blank counts as not set', () => {
  expect(readSettings({ PORT: '', HOST: '  ', DATABASE_URL: ' ' })).toMatchObject({
    production: false,
    port: 3000,
    host: '127.0.0.1',
    databaseUrl: undefined,
    configPath: 'oncehook.config.ts',
    logLevel: 'info',
    shutdownGraceMs: 20_000,
    callTimeoutMs: 15_000,
    staleAfterMs: 300_000,
    sweepEveryMs: 30_000,
    sendsPerMinute: 110,
    keepBodiesDays: 90,
  })
})

test.each([
  ['PORT', '-1'],
  ['PORT', '65536'],
  ['PORT', '80 '.repeat(2)],
  ['PORT', 'http'],
  ['DATABASE_URL', 'mysql://here/db'],
  ['PUBLIC_URL', 'hooks.example.com'],
  ['INBOXILI_BASE_URL', 'ftp://api.example.com'],
  ['INBOXILI_API_KEY', 'two words'],
  ['LOG_LEVEL', 'loud'],
  ['ONCEHOOK_CALL_TIMEOUT_MS', '0'],
  ['ONCEHOOK_CALL_TIMEOUT_MS', '1.5'],
  ['ONCEHOOK_SENDS_PER_MINUTE', '0'],
  ['ONCEHOOK_STALE_AFTER_MS', 'NaN'],
  ['ONCEHOOK_KEEP_BODIES_DAYS', 'Infinity'],
  ['SHUTDOWN_GRACE_MS', '99'],
])('the setting %s is refused when it is %j, without showing a secret', (name, value) => {
  const problems = problemsOf(() => readSettings({ [name]: value, ONCEHOOK_SWEEP_EVERY_MS: '' }))

  expect(problems.length).toBe(1)
  expect(problems[0]).toContain(name)
  if (/KEY|DATABASE/.test(name)) expect(problems[0]).not.toContain(value)
})

test('all wrong settings are told at once', () => {
  const problems = problemsOf(() => readSettings({ PORT: 'x', LOG_LEVEL: 'x', DATABASE_URL_FILE: join(folder, 'gone') }))

  expect(problems.map((problem) => problem.split(/[:\s]/)[0]).sort()).toEqual(['DATABASE_URL_FILE', 'LOG_LEVEL', 'PORT'])
})

test.each(['whsec_test', 'secret', 'changeme', 'change-me', 'your_secret', 'xxxxxxxx', 'whsec_x', '1234567', 'Password'])(
  'I22 production refuses the secret %j',
  (secret) => {
    const settings = readSettings({ DATABASE_URL: 'postgres://here/db', INBOXILI_API_KEY: 'ik_live_1' })
    const config = (secrets: string[]) => readConfig({ sources: { stripe: { provider: 'stripe', secrets } } })

    expect(productionProblems(settings, config(['whsec_a_good_one', secret]))).toEqual([
      'source stripe: a secret is a default or shorter than 8 characters',
    ])
    expect(productionProblems(settings, config(['whsec_a_good_one']))).toEqual([])
  },
)

test('a file is read anew each time it is loaded, and one that is of no use is told by its name', async () => {
  const path = join(folder, 'config.mjs')
  const write = (name: string) =>
    writeFileSync(path, `export default { sources: { ${name}: { provider: 'stripe', secrets: ['whsec_one_two_three'] } } }`)

  write('first')
  const first = await loadConfig(path)
  write('second')
  const second = await loadConfig(path)
  writeFileSync(path, 'export default {')
  const broken = await loadConfig(path).catch((error: unknown) => error)
  writeFileSync(path, 'export const config = {}')
  const empty = await loadConfig(path).catch((error: unknown) => error)
  const missing = await loadConfig(join(folder, 'nowhere.ts')).catch((error: unknown) => error)

  expect([[...first.sources.keys()], [...second.sources.keys()]]).toEqual([['first'], ['second']])
  for (const error of [broken, empty, missing]) expect(error).toBeInstanceOf(ConfigError)
  expect([broken, empty, missing].map((error) => (error as ConfigError).problems[0])).toEqual([
    expect.stringContaining(`${path} can't be loaded: `),
    expect.stringContaining('has no default export'),
    expect.stringContaining('does not exist'),
  ])
})

test('.env stands below the environment, and what is taken out of it is gone after the next reading', () => {
  const path = join(folder, '.env')
  vi.stubEnv('FROM_BOTH', 'environment')
  vi.stubEnv('FROM_FILE', undefined)
  vi.stubEnv('FROM_NEW_FILE', undefined)

  writeFileSync(path, 'FROM_BOTH=file\nFROM_FILE=one\n')
  loadEnvFile(path)
  const first = [process.env.FROM_BOTH, process.env.FROM_FILE]
  const inherited = environmentWithoutEnvFile()
  writeFileSync(path, 'FROM_NEW_FILE=two\n')
  loadEnvFile(path)
  const second = [process.env.FROM_BOTH, process.env.FROM_FILE, process.env.FROM_NEW_FILE]
  rmSync(path)
  loadEnvFile(path)

  expect(first).toEqual(['environment', 'one'])
  expect([inherited.FROM_BOTH, inherited.FROM_FILE]).toEqual(['environment', undefined])
  expect(second).toEqual(['environment', undefined, 'two'])
  expect(process.env.FROM_NEW_FILE).toBeUndefined()
})
