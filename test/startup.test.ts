import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { afterAll, expect, inject, test, vi } from 'vitest'
import { NEWEST_MIGRATION } from '../src/migrate.ts'
import { testDatabase } from './support/database.ts'
import { quick, run } from './support/processes.ts'

vi.setConfig({ testTimeout: 60_000 })

const { url: databaseUrl, pool } = await testDatabase()
const good = { ...quick, DATABASE_URL: databaseUrl }
const without = (...names: string[]) => Object.fromEntries(Object.entries(good).filter(([name]) => !names.includes(name)))
const lines = (text: string) => text.split('\n').filter((line) => line.startsWith('  - '))

test('C-13 does not start without usable secrets, and names each variable', async () => {
  const environment = { ...without('STRIPE_WEBHOOK_SECRETS'), GITHUB_WEBHOOK_SECRETS: '', SHOP_WEBHOOK_SECRETS: '   ' }

  const { code, stderr } = await run(['serve'], environment)

  expect(lines(stderr)).toEqual([
    '  - source stripe: STRIPE_WEBHOOK_SECRETS is not set, so nothing could be verified',
    '  - source github: GITHUB_WEBHOOK_SECRETS is not set, so nothing could be verified',
    '  - source shop: SHOP_WEBHOOK_SECRETS is not set, so nothing could be verified',
  ])
  expect(code).toBe(78)
})

test('I22 production refuses missing parts and guessable secrets, all at once', async () => {
  const production = {
    ...without('DATABASE_URL', 'INBOXILI_API_KEY'),
    NODE_ENV: 'production',
    STRIPE_WEBHOOK_SECRETS: 'whsec_test',
    SHOP_WEBHOOK_SECRETS: 'changeme,shop_of_the_tests',
  }

  const [serve, embedded, worker] = await Promise.all([
    run(['serve'], production),
    run(['start'], production),
    run(['worker'], { ...good, NODE_ENV: 'production', INBOXILI_API_KEY: '  ' }),
  ])

  expect([serve.code, embedded.code, worker.code]).toEqual([78, 78, 78])
  expect(lines(serve.stderr)).toEqual([
    '  - DATABASE_URL is not set: in production the embedded database is refused',
    '  - INBOXILI_API_KEY is not set: in production the sandbox is refused',
    '  - source stripe: a secret is a default or shorter than 8 characters',
    '  - source shop: a secret is a default or shorter than 8 characters',
  ])
  expect(lines(embedded.stderr).map((line) => line.split(' is ')[0])).toEqual(['  - DATABASE_URL', '  - INBOXILI_API_KEY'])
  expect(worker.stderr).toContain('INBOXILI_API_KEY')
})

test('I22 production refuses a database that could lose what was acknowledged', async () => {
  // The server of the tests has the other two off.
  await pool.query(`do $$ begin execute format('alter database %I set synchronous_commit = off', current_database()); end $$`)

  const { code, stderr } = await run(['serve'], { ...good, NODE_ENV: 'production' })

  expect(lines(stderr).sort()).toEqual([
    '  - fsync is off in the database, so acknowledged events could be lost',
    '  - full_page_writes is off in the database, so acknowledged events could be lost',
    '  - synchronous_commit is off in the database, so acknowledged events could be lost',
  ])
  expect(code).toBe(78)
})

test('a database without its tables is refused with what to do, and migrated by two instances at once', async () => {
  const server = inject('databaseUrl')
  const admin = new pg.Client({ connectionString: server })
  await admin.connect()
  const name = `test_empty_${process.pid}`
  await admin.query(`create database ${name}`)
  afterAll(async () => {
    await admin.query(`drop database ${name} with (force)`)
    await admin.end()
  })
  const empty = { ...good, DATABASE_URL: server.replace(/\/oncehook$/, `/${name}`) }

  const refused = await run(['serve'], empty)
  const together = await Promise.all([run(['migrate'], empty), run(['migrate'], empty)])
  const again = await run(['migrate'], empty)

  expect([refused.code, lines(refused.stderr)]).toEqual([78, ['  - the database lacks migrations: run oncehook migrate']])
  expect([...together, again].map(({ code, stdout, stderr }) => [code, stdout, stderr.trim().split('\n').at(-1)])).toEqual(
    Array(3).fill([0, '', 'The database is up to date.']),
  )
  const client = new pg.Client({ connectionString: empty.DATABASE_URL })
  await client.connect()
  const { rows } = await client.query(`select (select count(*) from oncehook_migrations)::int as migrations,
    (select array_agg(name order by name) from pgboss.queue where name not like '\\_\\_%') as queues`)
  await client.end()
  expect(rows).toEqual([{ migrations: 14, queues: ['process-event', 'send'] }])
})

test('the migration that a start asks for is the newest one', () => {
  const files = readdirSync(fileURLToPath(new URL('../migrations', import.meta.url)))

  expect(files.sort().at(-1)).toBe(`${NEWEST_MIGRATION}.sql`)
})

test('wrong usage exits 2 with help, a wrong configuration 78, an unreachable database 1', async () => {
  const noConfig = fileURLToPath(new URL('./vectors/stripe.json', import.meta.url))
  const unreachable = { DATABASE_URL: 'postgres://nobody@localhost:1/none' }

  const results = await Promise.all([
    run(['--help']),
    run([]),
    run(['frobnicate']),
    run(['trigger', 'stripe', 'invoice.paid', '--count', 'many'], good),
    run(['token', 'create', '--role', 'king', '--name', 'x'], good),
    run(['serve'], { ...good, ONCEHOOK_CONFIG: noConfig }),
    run(['serve'], { ...good, PORT: '65536', ONCEHOOK_STALE_AFTER_MS: 'soon' }),
    run(['migrate'], unreachable),
    run(['trigger', 'stripe', 'invoice.paid', '--url', 'http://localhost:1'], good),
  ])

  expect(results.map(({ code }) => code)).toEqual([0, 2, 2, 2, 2, 78, 78, 1, 1])
  const [help, none, unknown, count, role, broken, settings, away, nobody] = results.map(({ stdout, stderr }) => stdout + stderr)
  expect(help).toContain('oncehook [options] [command]')
  expect(none).toContain('oncehook [options] [command]')
  expect(unknown).toContain("unknown command 'frobnicate'")
  expect(count).toContain('a whole number from 1 to 9999')
  expect(role).toContain('--role')
  expect(broken).toContain("stripe.json can't be loaded")
  expect(lines(settings as string).map((line) => line.split(':')[0])).toEqual(['  - PORT', '  - ONCEHOOK_STALE_AFTER_MS'])
  expect(away).toContain('ECONNREFUSED')
  expect(nobody).toContain('http://localhost:1 does not answer')
})

test('an older Node is told what to use instead', async () => {
  const older = `data:text/javascript,Object.defineProperty(process,'versions',{value:{...process.versions,node:'22.21.1'}})`

  const { code, stdout, stderr } = await run(['--help'], {}, { nodeArgs: ['--import', older] })

  expect([code, stdout]).toEqual([78, ''])
  expect(stderr).toContain('oncehook needs Node 24, this is 22.21.1')
  expect(stderr).toContain('npx oncehook')
})
