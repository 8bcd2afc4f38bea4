import { createHmac } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test, vi } from 'vitest'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { testDatabase } from './support/database.ts'
import { insertAttempt, insertSend } from './support/ops-rows.ts'
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

test('reconcile says what a sending log would do, does it with --apply, and knows the account by the configuration', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'oncehook-log-'))
  const file = join(directory, 'log.csv')
  writeFileSync(
    file,
    '\ufeff"Message ID";"Recipient";"Status";"Time"\r\n"m_log";"log@example.com";"Delivered";"2026-11-29T14:02:07Z"\r\n',
  )
  const claimed = { recipient: 'log@example.com', claimed_at: new Date('2026-11-29T14:02:00Z') }
  await insertSend(pool, 'log:1', { ...claimed, state: 'needs_review' })
  await insertAttempt(pool, 'log:1', {
    ...claimed,
    outcome: 'unknown',
    called_at: claimed.claimed_at,
    ended_at: claimed.claimed_at,
  })
  const state = async () => (await pool.query(`select status, settled_by from email_sends where dedupe_key = 'log:1'`)).rows[0]

  const without = await run(['reconcile', file], { DATABASE_URL: databaseUrl }, { cwd: directory })
  const dry = await run(['reconcile', file], environment)
  const before = await state()
  const done = await run(['reconcile', file, '--apply', '--reason', 'checked by hand', '--by', 'ann'], environment)
  rmSync(directory, { recursive: true })

  expect(without.stdout).toMatch(/^2\tnothing\tlog:1\taccount not exclusive\t/)
  expect(without.stderr).toContain('So nothing is matched by recipient.')
  expect(dry.stdout).toMatch(/^2\tsettles\tlog:1\tis unknown, would be sent\t[0-9a-f]{64}\n$/)
  expect(dry.stderr).toContain('Columns: recipient = "Recipient" (guessed), message_id = "Message ID" (guessed)')
  expect(before).toEqual({ status: 'needs_review', settled_by: null })
  expect(done.stdout).toMatch(/^2\tsettles\tlog:1\twas unknown, is sent\t/)
  expect(await state()).toEqual({ status: 'delivered', settled_by: 'person:ann' })
  expect([without.code, dry.code, done.code]).toEqual([0, 0, 0])
})

test('sweep runs the sweeps of a worker once', async () => {
  const { code, stdout, stderr } = await run(['sweep', '--json'], environment)

  expect([code, stderr]).toEqual([0, ''])
  expect(Object.keys(JSON.parse(stdout))).toEqual(['sends', 'events', 'bodies', 'minutes'])
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

test('demo tells its stories and ends well', async () => {
  const { code, stdout, stderr } = await run(['demo'])

  expect(stdout.split('\n').filter((line) => /^\d\. /.test(line))).toEqual([
    '1. One payment, posted three times',
    '2. "Delivered" arrives before the send is recorded',
    '3. The answer of the email API is lost',
    '4. The email API refuses',
    '5. A lost answer is made up for by a delivery event',
    '6. Two lost answers to one customer',
    '7. A worker is killed between claim and call',
  ])
  expect(stdout.trim().split('\n').at(-1)).toBe('No email went out twice, and what nobody could know was left to a person.')
  expect([code, stderr]).toEqual([0, ''])
})
