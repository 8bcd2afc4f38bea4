import { defineConfig, env, key } from 'oncehook'

// How Klarna encodes its signature is not confirmed: try a test event before you rely on it. Its requests say little of the
// customer; where yours carry no address, look it up by the ID of the payment request.
export default defineConfig({
  sources: {
    klarna: { provider: 'klarna', secrets: env.list('KLARNA_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'klarna',
      type: 'payment.request.state-change.authorized',
      email: ({ payload }) =>
        payload.customer?.email && {
          key: key('payment request', payload.payment_request_id, 'authorized'),
          to: payload.customer?.email,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'payment failed',
      source: 'klarna',
      type: 'payment.request.state-change.declined',
      email: ({ payload }) =>
        payload.customer?.email && {
          key: key('payment request', payload.payment_request_id, 'declined'),
          to: payload.customer?.email,
          from_email: 'billing@example.com',
          subject: 'Your payment did not go through',
          html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
        },
    },
  ],
})
