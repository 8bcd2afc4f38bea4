import { defineConfig, env, key } from 'oncehook'

// A product that sends through Svix; the fields of `data` are its own choice, so look into what yours sends.
export default defineConfig({
  sources: {
    svix: { provider: 'svix', secrets: env.list('SVIX_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'svix',
      type: 'invoice.paid',
      email: ({ data }) => ({
        key: key('invoice', data.id, 'paid'),
        to: data.customer_email,
        from_email: 'billing@example.com',
        subject: 'We received your payment',
        html_body: '<p>Thank you, we received your payment.</p>',
      }),
    },
    {
      name: 'payment failed',
      source: 'svix',
      type: 'payment.failed',
      email: ({ data }) => ({
        key: key('payment', data.id, 'failed'),
        to: data.customer_email,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'svix',
      type: 'payment.refunded',
      email: ({ data }) => ({
        key: key('payment', data.id, 'refunded'),
        to: data.customer_email,
        from_email: 'billing@example.com',
        subject: 'Your refund is on its way',
        html_body: '<p>We have refunded your payment.</p>',
      }),
    },
    {
      name: 'subscription ended',
      source: 'svix',
      type: 'subscription.ended',
      email: ({ data }) => ({
        key: key('subscription', data.id, 'ended'),
        to: data.customer_email,
        from_email: 'billing@example.com',
        subject: 'Your subscription has ended',
        html_body: '<p>We are sorry to see you go.</p>',
      }),
    },
    {
      name: 'payout',
      source: 'svix',
      type: 'payout.paid',
      email: ({ data }) => ({
        key: key('payout', data.id, 'paid'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: `${data.id} is paid out`,
        html_body: '<p>The money is on its way to our account.</p>',
      }),
    },
  ],
})
