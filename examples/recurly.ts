import { defineConfig, env, key } from 'oncehook'

// Recurly advises to take its webhooks as a hint and to ask its API before anything of value happens. The names of the fields are
// not confirmed.
export default defineConfig({
  sources: {
    recurly: { provider: 'recurly', secrets: env.list('RECURLY_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'recurly',
      type: 'payment.succeeded',
      email: ({ uuid, account }) =>
        account?.email && {
          key: key('payment', uuid, 'succeeded'),
          to: account?.email,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'payment failed',
      source: 'recurly',
      type: 'payment.failed',
      email: ({ uuid, account }) =>
        account?.email && {
          key: key('payment', uuid, 'failed'),
          to: account?.email,
          from_email: 'billing@example.com',
          subject: 'Your payment did not go through',
          html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
        },
    },
    {
      name: 'subscription ended',
      source: 'recurly',
      type: ['subscription.canceled', 'subscription.expired'],
      email: ({ uuid, account }) =>
        account?.email && {
          key: key('subscription', uuid, 'ended'),
          to: account?.email,
          from_email: 'billing@example.com',
          subject: 'Your subscription has ended',
          html_body: '<p>We are sorry to see you go.</p>',
        },
    },
  ],
})
