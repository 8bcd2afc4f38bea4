import express from 'express'
import supertest from 'supertest'
import { test } from 'vitest'
import { openJobs } from '../src/follow-ups/queue.ts'
import { createLog } from '../src/log.ts'
import { opsRoutes } from '../src/ops/routes.ts'
import { createToken } from '../src/ops/tokens.ts'
import { listSends } from '../src/ops/send-queries.ts'
import { sendFilter } from '../src/ops/filters.ts'
import { testDatabase } from './support/database.ts'
const { pool, url } = await testDatabase()
test('probe', async () => {
  const { enqueueSends } = await openJobs(url)
  const token = await createToken(pool, { name: 'a', role: 'operator' })
  const app = express().use(opsRoutes({ pool, log: createLog('silent', 't'), enqueueSends, replay: async () => ({ outcome: 'queued' }) }))
  app.use(((e: any, _q: any, s: any, _n: any) => s.status(500).json({ m: String(e) })) as any)
  const message = { to: 'a@b.c', from_email: 'a@b.c', text_body: 'x' }
  const m = [
    '{"template_id":"a\\u0000b"}', '{"template_id":"\\ud800"}', '{"template_data":{"\\ud800":1}}', '{"template_data":{"a\\u0000":"b\\u0000"}}', '{"template_data":{"__proto__":1}}', '{"template_data":{"a":1e400}}', '{"subject":"\\ud800\\u0000"}',
    '{"template_data":{"a":123456789012345678901234567890.5, "b":-0, "c": 1e-7}}',
    '{"template_data":{"a":"\\\\u0000"}}',
  ]
  for (const [i, t] of m.entries()) {
    const body = () => `{"dedupe_key":"k${i}","message":{"to":"a@b.c","from_email":"a@b.c","text_body":"x",${t.slice(1)}}`
    const r = await supertest(app).post('/v1/sends').set('authorization', `Bearer ${token}`).set('content-type', 'application/json').send(body())
    const r2 = await supertest(app).post('/v1/sends').set('authorization', `Bearer ${token}`).set('content-type', 'application/json').send(body())
    console.log(t, r.status, JSON.stringify(r.body.message ?? r.body), r2.status, r2.status >= 400 ? JSON.stringify(r2.body) : '')
  }
  const gz = await supertest(app).post('/v1/sends').set('authorization', `Bearer ${token}`).set('content-type', 'application/json').set('content-encoding', 'gzip').send('{"a":1}')
  console.log('bad gzip', gz.status, gz.body)
  const cs = await supertest(app).post('/v1/sends').set('authorization', `Bearer ${token}`).set('content-type', 'application/json; charset=x').send('{"a":1}')
  console.log('charset', cs.status, cs.body)
  await pool.query(`insert into email_sends (dedupe_key, state, policy, recipient, message, message_sha256, requested_by, queued_at, completed_at, bounced_at, bounce_kind)
    select 'invoice:INV-' || i || ':paid', case when i % 50000 = 7 then 'needs_review' else 'sent' end, 'claim', 'user' || (i % 40000) || '@example.com', '{"subject":"s"}', '\\x00', 'event:1', now() - i * interval '10 s', now(),
    case when i % 100 = 3 then now() end, case when i % 100 = 3 then 'hard' end from generate_series(1, 400000) i`)
  await pool.query(`insert into webhook_events (source, event_id, id_basis, id_signed, type, body, body_sha256, headers, status, processed_at)
    select (array['stripe','github','adyen'])[1 + i % 3], 'evt_' || i, 'provider', true, 'invoice.paid', '\\x00', '\\x00', '{}', 'processed', now() from generate_series(1, 400000) i`)
  await pool.query('insert into follow_ups (event, rule, dedupe_key, outcome) select e.id, $1, s.dedupe_key, $2 from webhook_events e join email_sends s on s.dedupe_key = $3 || substr(e.event_id, 5) || $4', ['r', 'queued', 'invoice:INV-', ':paid'])
  await pool.query('analyze')
  const one = await listSends(pool, sendFilter(() => new Date()).parse({ limit: '50' }))
  for (const f of [{}, { cursor: one.next_cursor }, { status: 'needs_review' }, { status: 'bounced' }, { status: 'bounced,needs_review' }, { status: 'rejected' }, { recipient: 'USER7@example.com' }, { q: 'invoice:INV-77:paid' }, { q: 'INV-7777' }, { q: 'evt_399999' }, { q: 'user7@example.com' }, { q: 'nothing-at-all' }, { q: 'in' }, { since: '24h' }]) {
    const t = performance.now()
    const r = await listSends(pool, sendFilter(() => new Date()).parse(f))
    console.log(JSON.stringify(f).slice(0, 60), r.sends.length, (performance.now() - t).toFixed(1), 'ms')
  }
}, 120000)
