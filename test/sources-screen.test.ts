import { expect, test } from 'vitest'
import { testDatabase } from './support/database.ts'
import { insertEvent } from './support/ops-rows.ts'
import { testPages } from './support/page.ts'

const database = await testDatabase()
const { pool } = database
const { get } = await testPages(
  database,
  {
    sources: {
      stripe: { provider: 'stripe', secrets: ['whsec_first_of_the_tests', 'whsec_second_of_the_tests'] },
      square: {
        provider: 'square',
        secrets: ['square_of_the_tests'],
        notificationUrl: 'https://hooks.example.com/webhooks/square',
      },
    },
    followUps: [{ source: 'stripe', type: ['invoice.paid', 'charge.refunded'], email: () => undefined }],
  },
  { publicUrl: 'http://hooks.example.com/', fingerprints: (secrets) => secrets.map((_, index) => `f${index}`) },
)

test('a source tells why it refused, by which secret it verified, and how to set it up, and never a secret', async () => {
  await pool.query(
    `insert into source_minutes (source, minute, outcome, cause, count) values
       ('stripe', date_trunc('minute', now()), 'accepted', '', 90), ('stripe', date_trunc('minute', now()), 'refused', 'wrong_secret', 10)`,
  )
  await pool.query(
    `insert into source_secrets (source, fingerprint, verified, first_verified_at, last_verified_at) values ('stripe', 'f0', 90, now(), now())`,
  )

  const list = await get('/ops/sources')
  const page = await get('/ops/sources/stripe')

  expect(list.text).toContain('10.0 % (10 of 100)')
  expect(list.text).toContain('<a href="/ops/sources/square#set-up">Set up</a>')
  expect(page.text).toContain('<code>http://hooks.example.com/webhooks/stripe</code>')
  expect(page.text).toContain('PUBLIC_URL is http')
  expect(page.text).toContain('<code>invoice.paid</code>')
  expect(page.text).toContain('<code>charge.refunded</code>')
  expect(page.text).toContain('<td class="mono">f1</td>')
  expect(page.text).toContain('npx oncehook trigger stripe invoice.paid')
  expect(list.text + page.text).not.toMatch(/whsec_(first|second)/)
  expect((await get('/ops/sources/square')).text).toContain('without a slash at the end')
  expect((await get('/ops/sources/nobody')).status).toBe(404)
})

test('a source that has left the configuration is still shown, and its name is text', async () => {
  await pool.query(
    `insert into source_minutes (source, minute, outcome, cause, count)
     values ('<script>alert(1)</script>', date_trunc('minute', now()), 'refused', '<img src=x>', 1)`,
  )

  const list = await get('/ops/sources')
  const page = await get(`/ops/sources/${encodeURIComponent('<script>alert(1)</script>')}`)

  expect(page.status).toBe(200)
  expect(list.text).toContain('not configured any more')
  expect(list.text + page.text).not.toMatch(/<script>alert|<img src=x/)
})

test('a source counts the events that came with other content in the last day, and spells its secrets out', async () => {
  const conflictOf = async (id: string, source: string, at: string) => {
    const event = await insertEvent(pool, id, { source })
    for (const byte of ['\\x01', '\\x02'])
      await pool.query(
        `insert into webhook_conflicts (event, body, body_sha256, received_at) values ($1, $2, sha256($2), ${at})`,
        [event, byte],
      )
  }
  await conflictOf('evt_old', 'stripe', `now() - interval '25 h'`)
  await conflictOf('evt_now', 'stripe', 'now()')

  const { text } = await get('/ops/sources')

  expect(text).toContain('<a href="/ops/events?source=stripe&amp;has=conflict">1</a>')
  expect(text).toContain('secret 1, matched ')
  expect(text).toContain('secret 2, never matched')
  expect((await get('/ops/sources/stripe')).text).toContain('conflicts in 24 h: ')
  expect((await get('/ops/sources/square')).text).toContain('no conflicts in 24 h')
})
