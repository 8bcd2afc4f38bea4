import express from 'express'
import { listen } from './listen.ts'
import { isSignedByStripe } from './verify.ts'

// What Express can do at most: it verifies and reads each event, and stores nothing.
const secret = process.env.STRIPE_WEBHOOK_SECRETS ?? ''
const app = express().disable('x-powered-by').set('etag', false)

app.post('/webhooks/:source', express.raw({ type: '*/*', limit: '1mb' }), (req, res) => {
  if (!isSignedByStripe(req.headers['stripe-signature'], req.body, secret)) return void res.status(401).end()
  const { id, type } = JSON.parse(req.body.toString())
  res.json({ status: 'accepted', events: [{ id, type, status: 'accepted' }] })
})
listen(app)
