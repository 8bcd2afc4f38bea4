import { createHmac } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test, vi } from 'vitest'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { testDatabase } from './support/database.ts'
import { apiKey, quick, run, secrets, start, until } from './support/processes.ts'

vi.setConfig({ testTimeout: 60_000 })

const { url: databaseUrl, pool } = await testDatabase()
const sandbox = await startInboxiliSandbox({ apiKey })
afterAll(() => sandbox.close())
const environment = { ...quick, DATABASE_URL: databaseUrl, INBOXILI_BASE_URL: sandbox.url }
const vectors = fileURLToPath(new URL('./vectors/stripe.json', import.meta.url))

const [serve] = await Promise.all([start('serve', environment), start('worker', environment)])

test('trigger posts a signed sample, and the reading commands show what became of it', async () => {
  const triggered = await run(
    ['trigger', 'stripe', 'invoice.paid', '--url', serve.url, '--id', 'evt_cli', '--email', 'cli@example.com', '--count', '3'],
    environment,
  )
  const unknown = await run(['trigger', 'nobody', 'invoice.paid', '--url', serve.url], environment)
  await until(async () => (await pool.query(`select from email_sends where state = 'sent'`)).rows.length === 1, 'it is sent')
  const [sends, events, sendsJson] = await Promise.all([
    run(['sends', 'list'], { DATABASE_URL: databaseUrl }),
    run(['events', 'list'], { DATABASE_URL: databaseUrl }),
    run(['sends', 'list', '--json'], { DATABASE_URL: databaseUrl }),
  ])

  const answers = triggered.stdout.trim().split('\n')
  expect(answers.map((line) => line.slice(0, 4))).toEqual(['200 ', '200 ', '200 '])
  expect(answers.filter((line) => line.startsWith('200 {"status":"accepted"')).length).toBe(1)
  expect(triggered.code).toBe(0)
  expect([unknown.code, unknown.stderr]).toEqual([78, expect.stringContaining('there is no source "nobody"')])
  expect([sends.code, events.code]).toEqual([0, 0])
  expect(sends.stdout).toContain('cli@example.com')
  expect(events.stdout).toContain('evt_cli')
  expect(JSON.parse(sendsJson.stdout)).toMatchObject({
    sends: [{ recipient: 'cli@example.com', status: 'sent' }],
    next_cursor: null,
  })
})

test('token create prints the token alone, which then opens the API; a database is needed', async () => {
  const made = await run(['token', 'create', '--role', 'reader', '--name', 'ci'], { DATABASE_URL: databaseUrl })
  const without = await run(['token', 'create', '--role', 'reader', '--name', 'ci'], {}, { cwd: '/' })
  const answer = await fetch(`${serve.url}/v1/sends`, { headers: { authorization: `Bearer ${made.stdout.trim()}` } })

  expect(made).toEqual({ code: 0, stdout: expect.stringMatching(/^och_[\w-]{43}\n$/), stderr: '' })
  expect(answer.status).toBe(200)
  expect([without.code, without.stderr]).toEqual([78, expect.stringContaining('DATABASE_URL is not set')])
})

test('verify judges a file of captured requests without any service', async () => {
  const [good, missing] = await Promise.all([run(['verify', vectors, '--json']), run(['verify', '/nowhere.json'])])

  const results = JSON.parse(good.stdout) as { id: string; verified: boolean }[]
  expect(results.length).toBeGreaterThan(5)
  expect(new Set(results.map(({ verified }) => verified))).toEqual(new Set([true, false]))
  expect([good.code, missing.code]).toEqual([0, 2])
})

test('a running service finds out why it refuses, and says so in its metrics and to nobody else', async () => {
  const received = JSON.stringify({ id: 'evt_1', type: 'invoice.paid' })
  const signed = JSON.stringify({ id: 'evt_1', type: 'invoice.paid' }, undefined, 2)
  const stamp = Math.floor(Date.now() / 1000)
  const secret = secrets.STRIPE_WEBHOOK_SECRETS.split(',')[0] ?? ''
  const digest = createHmac('sha256', secret).update(`${stamp}.${signed}`).digest('hex')

  const answers: string[] = []
  const refuse = async () => {
    const answer = await fetch(`${serve.url}/webhooks/stripe`, {
      method: 'POST',
      headers: { 'stripe-signature': `t=${stamp},v1=${digest}` },
      body: received,
    })
    answers.push(`${answer.status} ${await answer.text()}`)
    return (await fetch(`${serve.url}/metrics`)).text()
  }

  // An explanation may take only so long, which the first ones of a process can need for themselves.
  await expect.poll(refuse).toMatch(/oncehook_webhook_refusals_total\{source="stripe",cause="body_reserialized"\} [1-9]/)
  expect(new Set(answers)).toEqual(new Set(['401 ']))
})

test('demo tells its four stories and ends well', async () => {
  const { code, stdout, stderr } = await run(['demo'])

  expect(stdout.split('\n').filter((line) => /^\d\. /.test(line))).toEqual([
    '1. One payment, posted three times',
    '2. "Delivered" arrives before the send is recorded',
    '3. The answer of the email API is lost',
    '4. The email API refuses',
  ])
  expect(stdout.trim().split('\n').at(-1)).toBe('Every email went out once, and what is unknown waits for a person.')
  expect([code, stderr]).toEqual([0, ''])
})
